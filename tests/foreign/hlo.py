"""References of `hlo.tsched`."""

from __future__ import annotations

import numpy as np
from scipy import special

from tests.foreign.references import Array, Foreign, einsum, sized, within


def reduce_window(x: Array) -> Array:
    p = np.full((x.shape[0] + 2, x.shape[1] + 2), -np.inf)
    p[2:, 2:] = x
    p = p[:-1, :-1]
    oh, ow = ((n - 5) // 2 + 1 for n in p.shape)
    return np.array([[p[2 * y : 2 * y + 5 : 2, 2 * x : 2 * x + 5 : 2].max() for x in range(ow)] for y in range(oh)])


def base_dilation(x: Array) -> Array:
    p = np.zeros((len(x) - 1) * 3 + 1 + 3)
    p[1:-2:3] = x
    return np.convolve(p, np.ones(4), "valid")


def select_and_scatter(x: Array, s: Array) -> Array:
    y = np.zeros_like(x)
    for (i, j), v in np.ndenumerate(s):
        w = x[2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
        a, b = np.unravel_index(np.argmax(w), w.shape)
        y[2 * i + a, 2 * j + b] += v
    return y


def near(start: Array, shape: tuple[int, ...], part: tuple[int, ...]) -> tuple[slice, ...]:
    at = [int(np.clip(s, 0, n - m)) for s, n, m in zip(start, shape, part, strict=True)]
    return tuple(slice(a, a + m) for a, m in zip(at, part, strict=True))


def dynamic_update_slice(x: Array, u: Array, s: Array) -> Array:
    y = x.copy()
    y[near(s, x.shape, u.shape)] = u
    return y


def conv_features(x: Array, f: Array) -> Array:
    n, c2, h = x.shape
    o2, c, k = f.shape
    wide = np.zeros((n, c2, (h - 1) * 2 + 1 + 8))
    wide[:, :, 4:-4:2] = x
    out = wide.shape[2] - (k - 1) * 3
    y = np.zeros((n, o2, out))
    for o in range(o2):
        g = o // (o2 // 2)
        for q in range(k):
            y[:, o] += np.einsum("nch,c->nh", wide[:, g * c : g * c + c, 3 * q : 3 * q + out], f[o, :, q])
    return y


def conv_batches(x: Array, f: Array) -> Array:
    k, _, o3 = f.shape
    b, o = len(x) // 3, o3 // 3
    windows = np.lib.stride_tricks.sliding_window_view(x, k, axis=1)
    parts = [np.einsum("bhck,kco->bho", windows[g * b : g * b + b], f[:, :, g * o : g * o + o]) for g in range(3)]
    return np.concatenate(parts, axis=2)


def gather_slices(x: Array, at: Array) -> Array:
    h, w, _ = x.shape
    return np.array([x[(r := int(np.clip(a, 0, h - 2))) : r + 2, np.clip(b, 0, w - 1)] for a, b in at])


def scatter_windows(x: Array, at: Array, u: Array) -> Array:
    y = x.copy()
    for a, part in zip(at, u, strict=True):
        if 0 <= a <= len(x) - 2:
            y[a : a + 2] += part
    return y


def scatter_last(x: Array, at: Array, u: Array) -> Array:
    y = x.copy()
    for a, row in zip(at, u, strict=True):
        if 0 <= a < len(x):
            y[a] = row
    return y


def pad_interior(x: Array, value: Array) -> Array:
    y = np.full((len(x), 2 * x.shape[1] - 1 + 2), value)
    y[:, 2::2] = x
    return y[:, :-3]


def sort_by_two(a: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    order = np.lexsort((-k.astype(int), a))
    return tuple(np.take_along_axis(t, order, 1) for t in (a, k, v))  # type: ignore[return-value]


def variadic(x: Array) -> tuple[Array, ...]:
    low, high = x.min(0), x.max(0)
    last = np.array([np.flatnonzero(c == c.min())[-1] for c in x.T])
    return low, high, x.argmin(0), last, (high - low).max()


def rfft(x: Array) -> tuple[Array, Array]:
    f = np.fft.rfft(x)
    return np.stack([f.real, f.imag], -1), x


def collectives(x: Array) -> tuple[Array, Array, Array]:
    p = len(x)
    blocks = x.reshape(p, p, -1)
    return blocks.sum(0), blocks.transpose(1, 0, 2).reshape(p, -1), np.roll(x, 1, 0)


def threefry(c: Array, key: Array) -> tuple[Array, Array]:
    mask = 0xFFFFFFFF
    k = [int(key[0]), int(key[1]), int(key[0]) ^ int(key[1]) ^ 0x1BD11BDA]
    out = np.zeros((len(c), 2), np.int64)
    for n, (a, b) in enumerate(c):
        x, y = (int(a) + k[0]) & mask, (int(b) + k[1]) & mask
        for block in range(5):
            for r in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
                x = (x + y) & mask
                y = ((y << r | y >> (32 - r)) & mask) ^ x
            x = (x + k[(block + 1) % 3]) & mask
            y = (y + k[(block + 2) % 3] + block + 1) & mask
        out[n] = x, y
    return out, (out >> 9) * 2.0**-23


LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def erf_inv(x: Array) -> Array:
    w = -np.log1p(-x * x)
    a, b = w - 2.5, np.sqrt(w) - 3
    near = ((-0.00125372503 * a - 0.00417768164) * a + 0.246640727) * a + 1.50140941
    far = ((-0.0076224613 * b + 0.00943887047) * b + 1.00167406) * b + 2.83297682
    return x * np.where(w < 5, near, far)


def while_loop(x: Array) -> tuple[Array, Array]:
    count = np.zeros(len(x), np.int64)
    for _ in range(12):
        go = np.abs(x) >= 0.1
        x = np.where(go, x * 0.5 - 0.01, x)
        count += go
    return x, count


def affine_scan(a: Array, b: Array) -> tuple[Array, Array]:
    y = [b[0]]
    for t in range(1, len(a)):
        y.append(a[t] * y[-1] + b[t])
    return np.cumprod(a, 0), np.array(y)


HLO = {
    "reduce_window": Foreign(reduce_window, sized("H W", (7, 6), (17, 33), (4, 5))),
    "base_dilation": Foreign(base_dilation, sized("N", (5,), (33,), (1,))),
    "select_and_scatter": Foreign(select_and_scatter, sized("H W", (7, 6), (17, 33), (3, 3))),
    "dynamic_slice": Foreign(
        lambda x, s: x[near(s, x.shape, (3, 2))], sized("M N", (5, 7), (9, 33), (3, 2)), within(-2, 8, "s")
    ),
    "dynamic_update_slice": Foreign(
        dynamic_update_slice, sized("M N m n", (5, 7, 2, 3), (9, 33, 5, 17), (1, 1, 1, 1)), within(-2, 8, "s")
    ),
    "conv_features": Foreign(conv_features, sized("N C H O K", (2, 3, 5, 2, 2), (1, 4, 17, 5, 3), (1, 1, 1, 1, 1))),
    "conv_batches": Foreign(conv_batches, sized("B H C K O", (2, 5, 3, 2, 2), (1, 17, 4, 3, 5), (1, 1, 1, 1, 1))),
    "gather_slices": Foreign(
        gather_slices, sized("H W C B", (5, 4, 3, 6), (9, 7, 17, 5), (2, 1, 1, 1)), within(-2, 9, "I")
    ),
    "scatter_windows": Foreign(scatter_windows, sized("H C B", (5, 3, 6), (9, 17, 20), (2, 1, 1)), within(-2, 9, "I")),
    "scatter_last": Foreign(scatter_last, sized("H C B", (5, 3, 6), (9, 17, 20), (1, 1, 1)), within(-2, 9, "I")),
    "pad_interior": Foreign(pad_interior, sized("M N", (3, 4), (5, 33), (1, 2))),
    "dot_general": einsum("kbmc,nckb->bcmn", *sized("K B M C N", (5, 2, 3, 3, 4), (17, 1, 5, 2, 33), (1, 1, 1, 1, 1))),
    "sort_by_two": Foreign(
        sort_by_two,
        sized("B N", (2, 7), (3, 33), (1, 1)),
        lambda g: {**g, "A": g["A"] % 4, "K": g["K"] % 3},
    ),
    "variadic": Foreign(variadic, sized("M N", (5, 3), (17, 33), (1, 1)), lambda g: {"X": np.round(g["X"])}),
    "cumulative_window": Foreign(
        lambda x: (np.cumsum(x, 1), np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1]),
        sized("B N", (2, 7), (3, 33), (1, 1)),
    ),
    "rfft": Foreign(rfft, sized("B N", (2, 6), (3, 7), (1, 1))),
    "collectives": Foreign(collectives, sized("P N", (3, 2), (4, 17), (1, 1))),
    "threefry": Foreign(threefry, sized("N", (5,), (33,), (1,))),
    "special": Foreign(
        lambda x, _: (special.gammaln(x), special.digamma(x), erf_inv(np.tanh(x - 3))),
        sized("N", (9,), (33,), (1,)),
        lambda g: {"X": np.abs(g["X"]) * 2 + 0.5, "c": np.array(LANCZOS)},
    ),
    "while_loop": Foreign(while_loop, sized("N", (9,), (33,), (1,))),
    "affine_scan": Foreign(affine_scan, sized("T D", (7, 3), (17, 33), (1, 1))),
}
