"""What the references of operators are made of: NumPy and SciPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import signal, special

Array = NDArray[Any]
Sizes = Mapping[str, int | str | float]


# --- convolutions -----------------------------------------------------------------------------------------------------


def bordered(x: Array, pad: int, value: float = 0) -> Array:
    """An array N…C with `pad` more elements at both ends of every dimension between."""
    return np.pad(x, [(0, 0), *[(pad, pad)] * (x.ndim - 2), (0, 0)], constant_values=value)


def conv(x: Array, f: Array, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1, fill: int = 0) -> Array:
    """A convolution in any number of dimensions, from SciPy's correlation of one channel at a time."""
    x = bordered(x, pad, fill)
    *sides, width, co = f.shape
    spread = np.zeros([dilation * (k - 1) + 1 for k in sides] + [width, co], f.dtype)
    spread[(*[slice(None, None, dilation)] * len(sides),)] = f
    out: list[list[Array]] = []
    for image in x:
        out.append([])
        for o in range(co):
            first = o // (co // groups) * width
            parts = [
                signal.correlate(image[..., first + c], spread[..., c, o], "valid", "direct") for c in range(width)
            ]
            out[-1].append(sum(parts)[(*[slice(None, None, stride)] * len(sides),)])  # type: ignore[index]
    return np.moveaxis(np.array(out), 1, -1)


SIDES = {
    1: (("", "left", "right"),),
    2: (("_h", "top", "bottom"), ("_w", "left", "right")),
    3: (("_d", "front", "back"), ("_h", "top", "bottom"), ("_w", "left", "right")),
}
"""For each number of dimensions how the attributes of each begin and end: of strides and dilations, and its two sides."""


def per_axis(how: dict[str, int], name: str, rank: int) -> list[int]:
    """An attribute along each dimension."""
    return [how.get(f"{name}{axis}", how.get(name, 1)) for axis, *_ in SIDES[rank]]


def framed(x: Array, kernel: Sequence[int], fill: float, how: dict[str, int]) -> tuple[Array, list[int], list[int]]:
    """Arrays N…C with the border that attributes of operators say, with the strides and the dilations of their dimensions."""
    rank, pad = x.ndim - 2, how.get("pad", 0)
    strides, dilations = (per_axis(how, name, rank) for name in ("stride", "dilation"))
    ends = [[how.get(f"pad_{side}", pad) for side in pair] for _, *pair in SIDES[rank]]
    for axis in range(rank * how.get("same", 0)):
        n, spans = x.shape[1 + axis], dilations[axis] * (kernel[axis] - 1) + 1
        more = max((-(-n // strides[axis]) - 1) * strides[axis] + spans - n, 0)
        ends[axis][0] += more // 2
        ends[axis][1] += more - more // 2
    return np.pad(x, ((0, 0), *map(tuple, ends), (0, 0)), constant_values=fill), strides, dilations


def conv_nd(x: Array, f: Array, groups: int = 1, fill: int = 0, **how: int) -> Array:
    """A convolution with the attributes of operators."""
    rank = x.ndim - 2
    x, strides, dilations = framed(x, f.shape[:rank], fill, how)
    spread = np.zeros(
        [d * (k - 1) + 1 for d, k in zip(dilations, f.shape[:rank], strict=True)] + [*f.shape[rank:]], f.dtype
    )
    spread[tuple(slice(None, None, d) for d in dilations)] = f
    return conv(x, spread, groups=groups)[(slice(None), *(slice(None, None, s) for s in strides))]


def transposed(x: Array, f: Array, same: int = 0, **how: int) -> Array:
    """Each input element spreads over the output: the full convolution of the input with zeros between its elements."""
    n, h, w, ci = x.shape
    sh, sw = per_axis(how, "stride", 2)
    spread = np.zeros((n, (h - 1) * sh + 1, (w - 1) * sw + 1, ci))
    spread[:, ::sh, ::sw] = x
    full = np.array(
        [
            [
                sum(signal.convolve(i[..., c], f[:, :, c, o], "full", "direct") for c in range(ci))
                for o in range(f.shape[-1])
            ]
            for i in spread
        ]
    )
    full = np.moveaxis(full, 1, -1)
    more = [(same * (k - s), same * max(k - s, 0) // 2) for k, s in zip(f.shape, (sh, sw), strict=False)]
    ends = [
        (how.get(f"pad_{a}", how.get("pad", 0)) + first, how.get(f"pad_{b}", how.get("pad", 0)) + both - first)
        for (_, a, b), (both, first) in zip(SIDES[2], more, strict=True)
    ]
    wide = np.pad(full, ((0, 0), *((0, max(-b, 0)) for _, b in ends), (0, 0)))
    (top, bottom), (left, right) = ends
    return wide[:, top : wide.shape[1] - max(bottom, 0), left : wide.shape[2] - max(right, 0)]


def capsule(x: Array, f: Array, stride: int = 1, pad: int = 0) -> Array:
    size = range(x.shape[3])
    rows = [[sum(conv(x[:, :, :, i, k], f[:, :, k, j], stride, pad) for k in size) for j in size] for i in size]
    return np.moveaxis(np.array(rows), (0, 1), (3, 4))


def quantized_conv(x: Array, f: Array, scale: Array, zero: int = 0, **how: int) -> Array:
    return conv_nd(x - zero, f, **how) * scale


def windows(x: Array, fill: float, how: dict[str, int]) -> Array:
    """The windows of an array NHWC, along two more dimensions at the end."""
    kernel = how.get("KH", 2), how.get("KW", 2)
    x, (sh, sw), _ = framed(x, kernel, fill, {"stride": 2} | how)
    return sliding_window_view(x, kernel, (1, 2))[:, ::sh, ::sw]


def max_pool(x: Array, **how: int) -> Array:
    return windows(x, -np.inf, how).max((-1, -2))


def avg_pool(x: Array, **how: int) -> Array:
    return windows(x, 0, how).mean((-1, -2))


# --- Winograd: the matrices as Lavin and Gray print them (2016, equations 8, 10 and 12) ----------------------------------

IN_2 = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64).T
WEIGHT_2 = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
OUT_2 = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64).T
WEIGHT_4 = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24


def signs(size: int) -> Array:
    """Both signs of a row of the input's matrix are in use, if that of the weight has the same."""
    return np.array([-1, 1, 1, 1]) if size == 4 else np.ones(6)


def weight(f: Array, g: Array) -> Array:
    return np.einsum("er,rsio,fs->efoi", g, f, g)


def winograd_weight(f: Array, g: Array) -> Array:
    return weight(f, signs(len(g))[:, None] * g)


def with_weight(g: Array, *matrices: Array) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """Inputs of a Winograd convolution whose `U` is made from a weight `F`, which the reference takes."""

    def prepare(given: dict[str, Array]) -> dict[str, Array]:
        _, _, co, ci = given["U"].shape
        f = (
            np.random.default_rng(co).integers(-8, 9, (3, 3, ci, co)) * 9.0
        )  # U is exact in f32: a row of G has a part of 1/24
        out = {**given, "U": weight(f, g), "F": f}
        return {**out, "In": matrices[0], "Out": matrices[1]} if matrices else out

    return prepare


def winograd(x: Array, _u: Array, *rest: Array, pad: int = 0) -> Array:
    return conv(x, rest[-1], pad=pad)


# --- the rest ---------------------------------------------------------------------------------------------------------


def layer_norm(x: Array, gain: Array, shift: Array, eps: float = 1e-5) -> Array:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps) * gain + shift


def rms_norm(x: Array, gain: Array, eps: float = 1e-5) -> Array:
    return x / np.sqrt(np.mean(x**2, 1, keepdims=True) + eps) * gain


def attention(q: Array, k: Array, v: Array) -> Array:
    return special.softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -1) @ v


def gelu_tanh(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@dataclass(frozen=True)
class Operator:
    """A reference of the inputs (in float64 or int64) and the attributes, and the sizes to ask at. It returns one array, or
    a tuple for several outputs.

    `prepare` makes of random inputs such as the operator is for, and may add what only the reference takes. Errors of f32
    may be `loss` times the largest result.
    """

    reference: Callable[..., Array | tuple[Array, ...]]
    sizes: Sequence[Sizes]
    prepare: Callable[[dict[str, Array]], dict[str, Array]] = dict
    loss: float = 2e-6


def each(names: str, *rows: tuple[int, ...], **more: int | str | float) -> list[Sizes]:
    return [{**dict(zip(names.split(), row, strict=True)), **more} for row in rows]


CONV1D = "N L CI CO KL"
CONV2D = "N H W CI CO KH KW"
CONV3D = "N D H W CI CO KD KH KW"
