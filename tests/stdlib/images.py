"""What the computes of `stdlib/image` give, from SciPy and NumPy in float64, and sizes to ask at: odd, or the smallest."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import ndimage, signal

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
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
    if not x.size:  # NumPy does not extend nothing
        return np.zeros([n // 2 for n in x.shape])
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


def turned_down(x: Array, a: Array, quarters: int) -> Array:
    """As `down`, in another direction: from the bottom for 2 quarters of a turn, from the left for 3, the right for 1."""
    return np.rot90(down(np.rot90(x, quarters), a), -quarters)


def weight(given: dict[str, Array]) -> dict[str, Array]:
    return {**given, "a": np.array(0.25)}


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


def equalized(x: Array) -> Array:
    counts = np.bincount(x.ravel(), minlength=256)
    so_far = np.cumsum(counts)
    least, total = so_far[so_far > 0].min(), x.size
    if least == total:
        return x
    return np.clip(((so_far - least) * 255 + (total - least) // 2) // (total - least), 0, 255)[x]


def blurred_cells(g: Array) -> Array:
    for axis in range(3):
        g = ndimage.correlate1d(g, np.array([1, 4, 6, 4, 1]), axis, mode="constant")
    return g


def sliced_cells(g: Array, z: Array, s: int) -> Array:
    rows, columns = np.indices(z.shape)
    return ndimage.map_coordinates(g, np.stack([rows / s, columns / s, z]), order=1, mode="nearest")


def bilateral(x: Array, s: int, bins: int) -> Array:
    z = np.clip(x, 0, 1) * bins
    sums, counts = np.zeros((2, *((n - 1) // s + 2 for n in x.shape), bins + 1))
    rows, columns = np.indices(x.shape)
    at = ((rows + s // 2) // s, (columns + s // 2) // s, np.floor(z + 0.5).astype(int))
    np.add.at(sums, at, x)
    np.add.at(counts, at, 1)
    return np.divide(*(sliced_cells(blurred_cells(g), z, s) for g in (sums, counts)))


def cubic_weights(size: int, n: int) -> Array:
    part = (2 * np.arange(n) + 1) * size - n
    d = abs((part % (2 * n) / (2 * n))[:, None] - np.arange(-1, 3))
    return np.where(d <= 1, 1.5 * d**3 - 2.5 * d**2 + 1, -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2)


def cubic(x: Array, OH: int, OW: int) -> Array:
    for axis, n in enumerate((OH, OW)):
        size = x.shape[axis]
        first = ((2 * np.arange(n) + 1) * size - n) // (2 * n) - 1
        matrix = np.zeros((n, size))
        for k, weight in enumerate(cubic_weights(size, n).T):
            np.add.at(matrix, (np.arange(n), np.clip(first + k, 0, size - 1)), weight)
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    return x


def enlarged(x: Array, OH: int, OW: int) -> Array:
    """At the places of an image of twice the size, also behind its last row or column."""
    if not x.size:
        return np.zeros((OH, OW))
    at = [(np.arange(n) + 0.5) / 2 - 0.5 for n in (OH, OW)]
    return ndimage.map_coordinates(x, np.stack(np.meshgrid(*at, indexing="ij")), order=1, mode="nearest")


def pyramid(x: Array, levels: int) -> list[Array]:
    return [x, *(x := halved(x) for _ in range(levels))]


def blended(a: Array, b: Array, m: Array) -> Array:
    """By the pyramids of both images, where the compute takes one of their difference."""
    levels = [pyramid(v, 3) for v in (a, b, m)]
    fine = [[v - enlarged(w, *v.shape) for v, w in pairwise(p)] + [p[-1]] for p in levels[:2]]
    mixed = [w * p + (1 - w) * q for p, q, w in zip(*fine, levels[2], strict=True)]
    out = mixed[-1]
    for detail in mixed[-2::-1]:
        out = detail + enlarged(out, *detail.shape)
    return out


def remapped(x: Array, alpha: Array, beta: Array, levels: int) -> Array:
    at = np.linspace(0, 1, levels)[:, None, None]
    d = x - at
    return at + beta * d + alpha * d * np.exp(-((d * (levels - 1)) ** 2) / 2)


def stack(f: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, **sizes: np.stack([f(image, **sizes) for image in x])


def between_levels(stacked: Array, z: Array) -> Array:
    """By `interp` at each element, where the compute reads two levels."""
    levels = np.linspace(0, 1, len(stacked))
    out = [np.interp(b, levels, stacked[:, i, j]) for (i, j), b in np.ndenumerate(z)]
    return np.reshape(out, z.shape)


def local_laplacian(x: Array, alpha: Array, beta: Array, levels: int) -> Array:
    """Level by level, with a pyramid of each remapped image."""

    def detail(image: Array) -> list[Array]:
        p = pyramid(image, 3)
        return [*(v - enlarged(w, *v.shape) for v, w in pairwise(p)), p[-1]]

    details = [np.stack(of) for of in zip(*map(detail, remapped(x, alpha, beta, levels)), strict=True)]
    mixed = [between_levels(d, z) for d, z in zip(details, pyramid(x, 3), strict=True)]
    out = mixed[-1]
    for fine in mixed[-2::-1]:
        out = fine + enlarged(out, *fine.shape)
    return out


CROSS = np.zeros((5, 5))
CROSS[2], CROSS[:, 2] = [-1, 2, 0, 2, -1], [-1, 2, 4, 2, -1]
ACROSS = np.array([[0, 0, 0.5, 0, 0], [0, -1, 0, -1, 0], [-1, 4, 5, 4, -1], [0, -1, 0, -1, 0], [0, 0, 0.5, 0, 0]])
OBLIQUE = np.array([[0, 0, -1.5, 0, 0], [0, 2, 0, 2, 0], [-1.5, 0, 6, 0, -1.5], [0, 2, 0, 2, 0], [0, 0, -1.5, 0, 0]])


def demosaiced(x: Array) -> Array:
    """By the four filters of the paper, figure 2, divided by 8."""
    p = np.pad(x, 2, "reflect")
    cross, across, down, oblique = (signal.correlate(p, f, "valid") / 8 for f in (CROSS, ACROSS, ACROSS.T, OBLIQUE))
    out = np.empty((*x.shape, 3))
    red, right, below, blue = (np.s_[i::2, j::2] for i in (0, 1) for j in (0, 1))
    for place, colours in (
        (red, (x, cross, oblique)), (right, (across, x, down)), (below, (down, x, across)), (blue, (oblique, cross, x)),
    ):  # fmt: skip
        for c, values in enumerate(colours):
            out[(*place, c)] = values[place]
    return out


def developed(x: Array, gain: Array, m: Array, black: int, white: int) -> Array:
    colour = np.array([[0, 1], [1, 2]])[tuple(np.indices(x.shape) % 2)]
    linear = demosaiced((x - black) / (white - black) * gain[colour])
    return np.floor(255 * np.clip(linear @ m.T, 0, 1) ** (1 / 2.2) + 0.5)


def from_rest(x: Array, b: Array, c: Array, d: Array) -> Array:
    return signal.lfilter([1.0], [1.0, -float(b), -float(c), -float(d)], x, axis=0, zi=np.zeros((3, x.shape[1])))[0]


def both_ways(x: Array, a: Array, rows: int = 200) -> Array:
    """A recursive filter down columns and up again. The image has so many more rows that what is beyond them is forgotten."""
    x = np.pad(x, [(rows, rows), (0, 0)], "edge")
    taps = [float(a[0])], [1.0, *(-float(v) for v in a[1:])]
    for _ in range(2):
        x = signal.lfilter(*taps, x, axis=0, zi=x[:1] * signal.lfilter_zi(*taps)[:, None])[0][::-1]
    return x[rows:-rows]


def gauss_recursive(x: Array, sigma: Array) -> Array:
    q = 3.97156 - 4.14554 * np.sqrt(1 - 0.26891 * sigma) if sigma < 2.5 else 0.98711 * sigma - 0.9633
    b = np.array([1.57825 + 2.44413 * q + 1.4281 * q**2 + 0.422205 * q**3, 2.44413 * q + 2.85619 * q**2 + 1.26661 * q**3,
                  -(1.4281 * q**2) - 1.26661 * q**3, 0.422205 * q**3])  # fmt: skip
    a = np.array([b[0] - b[1:].sum(), *b[1:]]) / b[0]  # together 1
    return both_ways(both_ways(x, a).T, a).T


def filters(given: dict[str, Array]) -> dict[str, Array]:
    return {**given, "a": np.array([0.25, 1.0, -0.5, 0.25])}


def below(best: Callable[..., Array], x: Array, n: int) -> Array:
    return best(sliding_window_view(x, n, 0), -1)


def within(best: Callable[..., Array], x: Array, n: int) -> Array:
    return best(sliding_window_view(x, (n, n)), (-2, -1))


IMAGE = each("H W", (19, 37), (1, 2))
RADII = each("H W r", (19, 37, 2), (1, 2, 1))
TAPS = each("H W K", (19, 37, 5), (2, 1, 2))

WIDE = each("H W r", (19, 37, 4), (1, 2, 3), (20, 5, 8), (3, 2, 0))
WITHIN = each("H W n m", (19, 37, 9, 3), (5, 6, 5, 4), (3, 4, 3, 1), (4, 3, 3, 3))
BELOW = each("H W n", (19, 37, 4), (3, 2, 3))
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
    "box_valid": Operator(
        lambda x, r: signal.correlate(x, np.full((2 * r + 1, 2 * r + 1), (2 * r + 1) ** -2.0), "valid"),
        each("H W r", (19, 37, 2), (5, 6, 2)),
    ),
    "separable": Operator(separable, TAPS),
    "separable_valid": Operator(
        lambda x, t: signal.correlate(x, np.outer(t, t), "valid"), each("H W K", (19, 37, 5), (3, 4, 3))
    ),
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
    "dilated_wide": Operator(lambda x, r: ndimage.maximum_filter(x, 2 * r + 1, mode="nearest"), WIDE),
    "eroded_wide": Operator(lambda x, r: ndimage.minimum_filter(x, 2 * r + 1, mode="nearest"), WIDE),
    "greatest_within": Operator(lambda x, n, **_: within(np.max, x, n), WITHIN),
    "least_within": Operator(lambda x, n, **_: within(np.min, x, n), WITHIN),
    "greatest_below": Operator(lambda x, n: below(np.max, x, n), BELOW),
    "least_below": Operator(lambda x, n: below(np.min, x, n), BELOW),
    "histogram": Operator(lambda x: np.bincount(x.ravel(), minlength=256), IMAGE),
    "equalized": Operator(equalized, [*IMAGE, *each("H W", (1, 1))]),
    "bilateral": Operator(bilateral, each("H W s bins", (19, 37, 4, 6), (1, 2, 8, 3), (9, 8, 3, 1))),
    "blurred_cells": Operator(blurred_cells, each("H W D", (3, 4, 5), (1, 2, 1))),
    "sliced_cells": Operator(
        sliced_cells,
        each("GH GW D H W s", (4, 5, 3, 11, 15, 4), (1, 1, 3, 1, 2, 3)),
        lambda given: {**given, "Z": np.abs(given["Z"]) % 1 * 2},
    ),
    "demosaiced": Operator(demosaiced, each("H W", (19, 37), (2, 3))),
    "developed": Operator(developed, each("H W black white", (19, 37, 64, 1023), (2, 3, 0, 65535)), loss=1 / 255),
    "gauss_recursive": Operator(
        gauss_recursive,
        IMAGE,
        lambda given: {**given, "sigma": np.array(3.5 if given["X"].shape[0] > 1 else 1.5)},
        loss=2e-5,
    ),
    "gauss_columns": Operator(both_ways, IMAGE, filters),
    "from_rest": Operator(
        from_rest,
        IMAGE,
        lambda given: {
            "D": np.where(np.arange(len(given["D"]))[:, None], given["D"], 0),
            **{name: np.array(v) for name, v in (("b", 1.0), ("c", -0.5), ("d", 0.25))},
        },
    ),
    "resized_cubic": Operator(cubic, each("H W OH OW", (19, 37, 8, 53), (1, 2, 3, 1))),
    "cubic_weights": Operator(lambda **given: cubic_weights(*given.values()), each("H O", (19, 8), (1, 3))),
    "pyramid": Operator(lambda x: tuple(pyramid(x, 4)[1:]), each("H W", (35, 50), (16, 17))),
    "pyramid_up_to": Operator(enlarged, each("H W OH OW", (19, 37, 39, 74), (1, 2, 2, 5))),
    "local_laplacian": Operator(local_laplacian, each("H W levels", (19, 37, 5), (1, 2, 2), (8, 17, 8))),
    "remapped": Operator(remapped, each("H W levels", (19, 37, 5), (1, 2, 2))),
    "stack_down": Operator(stack(halved), each("K H W", (3, 19, 38), (1, 2, 3))),
    "stack_up_to": Operator(stack(enlarged), each("K H W OH OW", (3, 19, 37, 39, 74), (1, 1, 2, 2, 5))),
    "between_levels": Operator(between_levels, each("K H W", (5, 19, 37), (1, 1, 2), (2, 3, 1))),
    "blended": Operator(blended, each("H W", (19, 37), (1, 2))),
    "pyramid_down": Operator(halved, each("H W", (19, 38), (2, 3))),
    "pyramid_up": Operator(lambda x: resized(x, 2 * x.shape[0], 2 * x.shape[1]), IMAGE),
    "resized": Operator(resized, each("H W OH OW", (19, 37, 8, 53), (1, 2, 3, 1))),
    "recursive": Operator(lambda x, a: turned_down(down(x, a), a, 2), IMAGE, weight),
    "recursive_blur": Operator(
        lambda x, a: turned_down(turned_down(turned_down(down(x, a), a, 2), a, 3), a, 1), IMAGE, weight
    ),
    "recursive_down": Operator(down, IMAGE, weight),
    "recursive_up": Operator(lambda x, a: turned_down(x, a, 2), IMAGE, weight),
    "recursive_across": Operator(lambda x, a: turned_down(x, a, 3), IMAGE, weight),
    "recursive_back": Operator(lambda x, a: turned_down(x, a, 1), IMAGE, weight),
}
