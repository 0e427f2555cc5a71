"""References of `onnx.tsched`."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import signal, special

from tests.foreign.references import Array, Foreign, Given, positive, sized, within

MN = sized("M N", (3, 5), (17, 70))


def matrix_windows(x: Array, r: int, s: int) -> Array:
    """[B, C, H, W] -> [B, C, H - r + 1, W - s + 1, r, s]"""
    return sliding_window_view(x, (r, s), axis=(2, 3))


def layer_norm(x: Array, scale: Array, bias: Array, epsilon: Array) -> tuple[Array, Array]:
    mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + bias, mean[:, 0]


def group_norm(x: Array, scale: Array, bias: Array) -> Array:
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale[..., None] + bias[..., None]


def qlinear_conv(x: Array, xs: Array, xz: Array, f: Array, fs: Array, fz: Array, ys: Array, yz: Array) -> Array:
    sums = np.einsum("bchwrs,kcrs->bkhw", matrix_windows(x - xz, *f.shape[2:]), f - fz)
    # Three roundings to f32: where a half is near, the kernel may go to either side, so the scales are powers of 2.
    return np.clip(np.rint(sums * (xs * fs / ys)) + yz, 0, 255).astype(int)


def powers_of_two(given: Given) -> Given:
    return {n: np.array(2.0**-k) if n.endswith("_scale") else a for k, (n, a) in enumerate(given.items())}


def conv_transpose(x: Array, f: Array) -> Array:
    b, c, n = x.shape
    spread = np.zeros((b, c, 2 * n - 1))
    spread[..., ::2] = x
    return np.array(
        [[sum(signal.convolve(i[q], f[q, k]) for q in range(c)) for k in range(f.shape[1])] for i in spread]
    )


def cross_entropy(x: Array, i: Array) -> Array:
    picked = np.take_along_axis(special.log_softmax(x, 1), np.clip(i, 0, x.shape[1] - 1)[:, None], 1)
    return -picked.mean()


def max_pool(x: Array) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    return matrix_windows(padded, 3, 3)[:, :, ::2, ::2].max((-1, -2))


def average_pool(x: Array) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1)], constant_values=np.nan)
    return np.nanmean(sliding_window_view(padded, 3, axis=2), -1)


def local_response(x: Array) -> Array:
    squares = np.pad(x * x, [(0, 0), (1, 1), (0, 0)])
    return x / (1 + 0.0001 * sliding_window_view(squares, 3, axis=1).sum(-1)) ** 0.75


def resize_linear(x: Array) -> Array:
    n = x.shape[1]
    at = np.arange((n - 1) * 4 + 1) / 4
    return np.array([np.interp(at, np.arange(n), row) for row in x])


def depth_to_space(x: Array) -> Array:
    b, c, h, w = x.shape
    return x.reshape(b, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(b, c // 4, 2 * h, 2 * w)


def space_to_depth(x: Array) -> Array:
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(b, 4 * c, h // 2, w // 2)


def one_hot(i: Array, off: Array, on: Array) -> Array:
    wrapped = np.where(i < 0, i + 5, i)
    return np.where(wrapped[:, None] == np.arange(5), on, off)


def gather_nd(x: Array, i: Array) -> Array:
    first, second = (np.clip(i[:, n], 0, x.shape[n] - 1) for n in (0, 1))
    return x[first, second]


def reverse_sequence(x: Array, n: Array) -> Array:
    steps = np.arange(len(x))[:, None]
    index = np.where(steps < n, n - 1 - steps, steps)
    return np.take_along_axis(x, index[:, :, None], 0)


def gru(x: Array, r: Array) -> Array:
    z = special.expit(x @ r[0].T)

    def step(h: Array, t: int) -> Array:
        return (1 - z[t]) * np.tanh(x[t] + h @ r[1].T) + z[t] * h

    return np.array(list(accumulate(range(len(x)), step, initial=np.zeros(x.shape[1:]))))


def lstm(x: Array, f: Array, i: Array) -> Array:
    def step(state: tuple[Array, Array], row: Array) -> tuple[Array, Array]:
        c, h = state
        return special.expit(f + h) * c + special.expit(i) * np.tanh(row), np.tanh(c) * special.expit(row)

    start = np.zeros(x.shape[1:])
    return list(accumulate(x, step, initial=(start, start)))[-1][1]


def full_lstm(x: Array, w: Array, u: Array, b: Array) -> Array:
    """Gates in the order of the input, what is forgotten, the cell and the output."""
    c = h = np.zeros(u.shape[1])
    out: list[Array] = []
    for row in x:
        i, f, g, o = (w @ row) + (u @ h) + b
        c = special.expit(f) * c + special.expit(i) * np.tanh(g)
        h = special.expit(o) * np.tanh(c)
        out.append(h)
    return np.array(out)


def dft(x: Array, w: Array) -> tuple[Array, Array]:
    n = np.arange(len(x))
    y = x * (0.5 - 0.5 * np.cos(w * n))
    made = np.exp(-1j * w * np.outer(n, n)) @ y
    return made.real, made.imag


def small_angle(given: Given) -> Given:
    return {**given, "w": np.array(2.0**-9)}


def mean_of_three(a: Array, b: Array, c: Array) -> Array:
    return (a + b + c) / 3


def mish_hardswish(x: Array) -> tuple[Array, Array]:
    return x * np.tanh(np.logaddexp(0, x)), x * np.clip(x / 6 + 0.5, 0, 1)


def average_rows(x: Array) -> Array:
    return x.mean((2, 3), keepdims=True)


def conv_groups(x: Array, f: Array) -> Array:
    r, s = f.shape[3:]
    wide = np.zeros((*f.shape[:4], 2 * s - 1))
    wide[..., ::2] = f
    windows = sliding_window_view(x, (r, 2 * s - 1), axis=(3, 4))[:, :, :, ::2]
    return np.einsum("bgchwrs,gkcrs->bgkhw", windows, wide)


def quantize(x: Array, scale: Array, zero: Array) -> Array:
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(int)


def stepped_scale(given: Given) -> Given:
    return {**given, "scale": np.array(0.125)}


def pad_both(x: Array, value: Array) -> Array:
    return np.pad(x, [(2, 2), (2, 0)], constant_values=float(value))


def trilu(x: Array) -> tuple[Array, Array]:
    return np.triu(x, 1), np.tril(x, 1)


def reductions(x: Array) -> tuple[Array, ...]:
    return x.sum(0), x.max(0), x.prod(0)


def everything(x: Array) -> tuple[Array, ...]:
    return np.sum(x), np.max(x), np.sqrt(np.sum(x * x))


def norms(x: Array) -> tuple[Array, Array]:
    return np.linalg.norm(x, 1, axis=1), np.linalg.norm(x, axis=1)


def arg_max(x: Array) -> tuple[Array, Array]:
    return x.argmax(1), x.argmin(2)


def hardmax(x: Array) -> Array:
    return np.eye(x.shape[1])[x.argmax(1)]


def any_all(x: Array, t: Array) -> tuple[Array, Array]:
    return np.max(x, 1) > t, np.asarray(np.max(x) < t)


def exclusive(x: Array) -> Array:
    return np.cumsum(x, 1) - x


ABC = sized("A B C", (2, 3, 5), (3, 7, 33))
ONNX: dict[str, Foreign] = {
    "clip": Foreign(lambda x, a, b: np.minimum(np.maximum(x, a), b), MN),
    "clip_low": Foreign(np.maximum, ABC),
    "clip_scalar": Foreign(lambda x, a, b: np.minimum(np.maximum(x, a), b), sized("", ())),
    "where_broadcast": Foreign(np.where, MN),
    "prelu": Foreign(
        lambda x, s: np.where(x >= 0, x, x * s[:, None, None]), sized("B C H W", (1, 3, 2, 5), (2, 17, 3, 19))
    ),
    "shrink": Foreign(
        lambda x, lambd, bias: np.sign(x) * (np.abs(x) > lambd) * (np.abs(x) - bias), sized("N", (7,), (1000,)),
        positive("lambd"),
    ),
    "mean_of_three": Foreign(mean_of_three, MN),
    "mish_hardswish": Foreign(mish_hardswish, MN),
    "gemm": Foreign(lambda a, b, c, s, t: s * (a @ b) + t * c, sized("M K N", (3, 5, 7), (17, 33, 40))),
    "gemm_turned": Foreign(lambda a, b, c, s, t: s * (b @ a).T + t * c, sized("K M N", (5, 3, 7), (33, 17, 40))),
    "matmul_integer": Foreign(lambda a, b, x, y: (a - x) @ (b - y), sized("M K N", (3, 5, 7), (5, 33, 48))),
    "qlinear_conv": Foreign(
        qlinear_conv, sized("B C H W K R S", (1, 2, 5, 6, 3, 3, 2), (2, 3, 5, 19, 4, 2, 3)), powers_of_two
    ),
    "quantize": Foreign(quantize, MN, stepped_scale),
    "dequantize_axis": Foreign(lambda x, s, z: (x - z[:, None]) * s[:, None], MN),
    "conv_transpose_1d": Foreign(conv_transpose, sized("B C L K R", (1, 2, 5, 3, 3), (2, 3, 17, 2, 4))),
    "grouped_conv": Foreign(conv_groups, sized("B G C H W K R S", (1, 2, 3, 5, 7, 2, 3, 2), (2, 1, 2, 7, 21, 3, 2, 3))),
    "reduce_l1_l2": Foreign(norms, MN),
    "reduce_first_axis": Foreign(reductions, sized("M N", (3, 5), (7, 70))),
    "log_sum_exp": Foreign(lambda x: special.logsumexp(x, 1), ABC),
    "reduce_all": Foreign(everything, MN),
    "arg_max": Foreign(arg_max, ABC),
    "hardmax": Foreign(hardmax, MN),
    "any_all": Foreign(any_all, MN),
    "softmax_first": Foreign(lambda x: special.softmax(x, 0), MN),
    "log_softmax": Foreign(lambda x: special.log_softmax(x, 2), ABC),
    "softmax_all": Foreign(special.softmax, sized("N", (7,), (300,))),
    "layer_norm_scalar": Foreign(layer_norm, MN, positive("epsilon")),
    "group_norm": Foreign(group_norm, sized("B G C L", (1, 2, 3, 5), (2, 3, 2, 33))),
    "batch_norm": Foreign(
        lambda x, s, b, m, v, e: (x - m[:, None]) / np.sqrt(v[:, None] + e) * s[:, None] + b[:, None],
        sized("B C L", (2, 3, 5), (2, 5, 37)), positive("var", "epsilon"),
    ),
    "local_response": Foreign(local_response, sized("B C L", (1, 5, 3), (2, 7, 33))),
    "cross_entropy": Foreign(cross_entropy, sized("N C", (3, 5), (33, 7)), within(-2, 8, "I")),
    "max_pool": Foreign(max_pool, sized("B C H W", (1, 2, 5, 7), (2, 3, 9, 33))),
    "average_pool": Foreign(average_pool, sized("B C L", (1, 2, 5), (2, 3, 70))),
    "global_average_pool": Foreign(average_rows, sized("B C H W", (1, 3, 2, 5), (2, 5, 7, 17))),
    "resize_nearest": Foreign(lambda x: x.repeat(2, 1).repeat(3, 2), sized("C H W", (1, 2, 3), (3, 5, 17))),
    "resize_linear": Foreign(resize_linear, sized("C N", (2, 3), (5, 17))),
    "pad_reflect": Foreign(lambda x: np.pad(x, [(0, 0), (2, 2)], "reflect"), sized("M N", (3, 1), (5, 40))),
    "pad_edge": Foreign(lambda x: np.pad(x, [(2, 0), (0, 2)], "edge"), sized("M N", (0, 0), (5, 40))),
    "pad_wrap": Foreign(lambda x: np.pad(x, [(0, 0), (0, 3)], "wrap"), sized("M N", (3, 2), (5, 40))),
    "pad_constant": Foreign(pad_both, sized("M N", (3, 2), (5, 40))),
    "depth_to_space": Foreign(depth_to_space, sized("B C H W", (1, 2, 3, 2), (2, 3, 4, 17))),
    "space_to_depth": Foreign(space_to_depth, sized("B C H W", (1, 2, 3, 2), (2, 3, 4, 17))),
    "trilu": Foreign(trilu, sized("B M N", (1, 3, 5), (2, 17, 19))),
    "one_hot": Foreign(one_hot, sized("N", (3,), (70,)), within(-5, 4, "I")),
    "gather_nd": Foreign(gather_nd, sized("A B C N", (2, 3, 5, 4), (3, 5, 33, 7)), within(-2, 6, "I")),
    "gather_elements": Foreign(
        lambda x, i: np.take_along_axis(x, np.clip(i, 0, x.shape[1] - 1), 1), sized("M N K", (3, 5, 2), (7, 33, 40))
    ),
    "slice_reversed": Foreign(lambda x: x[::2, ::-1], sized("M N", (3, 5), (17, 70))),
    "tile_twice": Foreign(lambda x: np.tile(x, (2, 3)), sized("M N", (3, 5), (7, 33))),
    "expand_turned": Foreign(lambda x: np.repeat(x.T, 4, 1), sized("A C", (3, 5), (33, 17))),
    "eye_like": Foreign(lambda x: np.eye(x.shape[0], x.shape[1], 1), MN),
    "reverse_sequence": Foreign(reverse_sequence, sized("T B C", (3, 2, 5), (7, 5, 33)), within(1, 3, "n")),
    "cum_sum_exclusive": Foreign(exclusive, MN),
    "cum_sum_reversed": Foreign(lambda x: np.cumsum(x[::-1], 0)[::-1], MN),
    "cum_sum_1d": Foreign(np.cumsum, sized("N", (1,), (70,))),
    "gru": Foreign(gru, sized("T B", (2, 3), (5, 17))),
    "lstm_cell": Foreign(lstm, sized("T B C", (2, 3, 5), (5, 3, 33))),
    "lstm": Foreign(full_lstm, sized("T D C", (3, 2, 5), (4, 17, 33))),
    "hann_dft": Foreign(dft, sized("N", (5,), (40,)), small_angle),
}  # fmt: skip
