"""What the computes of `stdlib/image` give, from SciPy and NumPy in float64, and sizes to ask at: odd, or the smallest."""

from __future__ import annotations

import numpy as np
from scipy import ndimage, signal

from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.source import Source
from tests.stdlib.numerics import Array, Operator, each

LIBRARY: CheckedFile = load_source(Source("t.tsched", "use std.image\nuse std.cpu.{default}\n"))

SOBEL = np.outer([1, 2, 1], [-1, 0, 1])
BRIGHTNESS = np.array([0.299, 0.587, 0.114])


def separable(x: Array, t: Array) -> Array:
    down = ndimage.correlate1d(x, t, 0, mode="nearest")
    return ndimage.correlate1d(down, t, 1, mode="nearest")


def harris(x: Array) -> Array:
    p = np.pad(x, 2, "edge")
    down, across = (signal.correlate(p, f, "valid") for f in (SOBEL.T, SOBEL))
    dd, aa, da = (signal.correlate(v, np.ones((3, 3)), "valid") for v in (down**2, across**2, down * across))
    return dd * aa - da**2 - 0.04 * (dd + aa) ** 2


def ycc(x: Array) -> Array:
    g = x @ BRIGHTNESS
    return np.stack([g, (x[..., 2] - g) / 1.772, (x[..., 0] - g) / 1.402], -1)


def rgb(x: Array) -> Array:
    red, blue = x[..., 0] + 1.402 * x[..., 2], x[..., 0] + 1.772 * x[..., 1]
    return np.stack([red, (x[..., 0] - 0.299 * red - 0.114 * blue) / 0.587, blue], -1)


def halved(x: Array) -> Array:
    for axis in (0, 1):
        p = np.moveaxis(np.pad(x, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], "edge"), axis, 0)
        n = x.shape[axis] // 2
        terms = [w * p[k : k + 2 * n : 2] for k, w in enumerate((1, 3, 3, 1))]
        x = np.moveaxis(np.sum(terms, axis=0) / 8, 0, axis)
    return x


def resized(x: Array, OH: int, OW: int) -> Array:
    at = [(np.arange(n) + 0.5) * size / n - 0.5 for n, size in zip((OH, OW), x.shape, strict=True)]
    return ndimage.map_coordinates(x, np.stack(np.meshgrid(*at, indexing="ij")), order=1, mode="nearest")


def down(x: Array, a: Array) -> Array:
    out = x.copy()
    for y in range(1, len(x)):
        out[y] = a * x[y] + (1 - a) * out[y - 1]
    return out


def rounded(x: Array, by: int) -> Array:
    """Whole numbers divided by another, to the nearest; halves go up."""
    return (x + by // 2) // by


def gauss_u8(x: Array) -> Array:
    t = np.array([1, 4, 6, 4, 1])
    return rounded(ndimage.correlate1d(ndimage.correlate1d(x, t, 0, mode="nearest"), t, 1, mode="nearest"), 256)


def unsharp_u8(x: Array, amount: int) -> Array:
    return np.clip(x + rounded(amount * (x - gauss_u8(x)), 16), 0, 255)


def box_u8(x: Array, r: int) -> Array:
    p, n = np.pad(x, r, "edge"), 2 * r + 1
    return rounded(signal.correlate(p, np.ones((n, n), int), "valid", "direct"), n * n)


IMAGE = each("H W", (19, 37), (1, 2))
RADII = each("H W r", (19, 37, 2), (1, 2, 1))
TAPS = each("H W K", (19, 37, 5), (2, 1, 2))

BORDERS = each("H W r", (19, 37, 2), (1, 2, 1), (2, 1, 7), (3, 4, 13))

COMPUTES: dict[str, Operator] = {
    "extended": Operator(lambda x, r: np.pad(x, r, "edge"), BORDERS),
    "reflected": Operator(lambda x, r: np.pad(x, r, "symmetric"), BORDERS),
    "mirrored": Operator(lambda x, r: np.pad(x, r, "reflect"), BORDERS),
    "wrapped": Operator(lambda x, r: np.pad(x, r, "wrap"), BORDERS),
    "framed": Operator(lambda x, v, r: np.pad(x, r, constant_values=float(v)), BORDERS),
    "mean_u8": Operator(lambda a, b: rounded(a + b, 2), IMAGE),
    "difference_u8": Operator(lambda a, b: abs(a - b), IMAGE),
    "box_u8": Operator(box_u8, [*RADII, *each("H W r", (9, 11, 7), Acc="u16")]),
    "gauss_u8": Operator(gauss_u8, IMAGE),
    "unsharp_u8": Operator(unsharp_u8, each("H W amount", (19, 37, 16), (1, 2, 127), (19, 5, 127))),
    "sobel_u8": Operator(
        lambda x: np.minimum(sum(abs(ndimage.sobel(x, axis, mode="nearest")) for axis in (0, 1)), 255), IMAGE
    ),
    "box": Operator(lambda x, r: ndimage.uniform_filter(x, 2 * r + 1, mode="nearest"), RADII),
    "separable": Operator(separable, TAPS),
    "unsharp": Operator(lambda x, t, amount: x + amount * (x - separable(x, t)), TAPS),
    "gray": Operator(lambda x: x @ BRIGHTNESS, IMAGE),
    "gray_u8": Operator(lambda x: (x @ [77, 150, 29] + 128) // 256, IMAGE),
    "ycc_from_rgb": Operator(ycc, IMAGE),
    "rgb_from_ycc": Operator(rgb, IMAGE, loss=4e-6),
    "sobel": Operator(lambda x: np.hypot(*(ndimage.sobel(x, axis, mode="nearest") for axis in (0, 1))), IMAGE),
    "difference_down": Operator(lambda x: signal.correlate(x, SOBEL.T, "valid"), each("H W", (19, 37))),
    "difference_across": Operator(lambda x: signal.correlate(x, SOBEL, "valid"), each("H W", (19, 37))),
    "harris": Operator(harris, each("H W", (19, 37))),
    "median": Operator(lambda x: ndimage.median_filter(x, 3, mode="nearest"), IMAGE),
    "dilated": Operator(lambda x, r: ndimage.maximum_filter(x, 2 * r + 1, mode="nearest"), RADII),
    "eroded": Operator(lambda x, r: ndimage.minimum_filter(x, 2 * r + 1, mode="nearest"), RADII),
    "pyramid_down": Operator(halved, each("H W", (19, 38), (2, 3))),
    "pyramid_up": Operator(lambda x: resized(x, 2 * x.shape[0], 2 * x.shape[1]), IMAGE),
    "resized": Operator(resized, each("H W OH OW", (19, 37, 8, 53), (1, 2, 3, 1))),
    "recursive": Operator(
        lambda x, a: down(down(x, a)[::-1], a)[::-1], IMAGE, lambda given: {**given, "a": np.array(0.25)}
    ),
    "recursive_down": Operator(down, IMAGE, lambda given: {**given, "a": np.array(0.25)}),
}
