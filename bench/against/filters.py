"""What filters of images give, as a user of NumPy and SciPy would write them: in float64 (or int64) the reference, on the
inputs as they are a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from scipy import ndimage

from bench.against.problem import Array, Outputs, Problem

Arrays = Mapping[str, Array]


def separable(a: Arrays, _: Problem) -> Array:
    across = ndimage.correlate1d(a["X"], a["t"], 1, mode="nearest")
    return ndimage.correlate1d(across, a["t"], 0, mode="nearest")


def _sobel(a: Arrays, _: Problem) -> Array:
    return np.hypot(*(ndimage.sobel(a["X"], axis, mode="nearest") for axis in (0, 1)))


def corners(down: Array, across: Array) -> Array:
    """What Harris's detector makes of two gradients, where windows of 3 × 3 are inside."""
    products = (down * down, across * across, down * across)
    dd, aa, da = (9 * ndimage.uniform_filter(x, 3, mode="nearest")[1:-1, 1:-1] for x in products)
    return dd * aa - da * da - 0.04 * (dd + aa) ** 2


def _harris(a: Arrays, _: Problem) -> Array:
    p = np.pad(a["X"], 2, "edge")
    down, across = (ndimage.sobel(p, axis, mode="nearest")[1:-1, 1:-1] for axis in (0, 1))
    return corners(down, across)


def _dilated(radius: int) -> Callable[[Arrays, Problem], Array]:
    """The greatest element of a window, of that radius if the task does not say another."""
    return lambda a, p: ndimage.maximum_filter(a["X"], 2 * p.attribute("r", radius) + 1, mode="nearest")


def _wide(x: Array) -> Array:
    """Bytes in a type that holds sums of them."""
    return x.astype(np.int32)


def _box_u8(a: Arrays, p: Problem) -> Array:
    r = p.attribute("r", 1)
    n, taps = 2 * r + 1, np.ones(2 * r + 1, np.int32)
    x = ndimage.correlate1d(_wide(a["X"]), taps, 0, mode="nearest")
    return (ndimage.correlate1d(x, taps, 1, mode="nearest") + n * n // 2) // (n * n)


def _gauss_u8(a: Arrays, _: Problem) -> Array:
    taps = np.array([1, 4, 6, 4, 1])
    x = ndimage.correlate1d(_wide(a["X"]), taps, 0, mode="nearest")
    return (ndimage.correlate1d(x, taps, 1, mode="nearest") + 128) >> 8


def _sobel_u8(a: Arrays, _: Problem) -> Array:
    x = _wide(a["X"])
    down, across = (np.abs(ndimage.sobel(x, axis, mode="nearest")) for axis in (0, 1))
    return np.minimum(down + across, 255)


def _equalized(a: Arrays, _: Problem) -> Array:
    x = a["X"]
    so_far = np.cumsum(np.bincount(x.ravel(), minlength=256))
    least, total = so_far[so_far > 0].min(), x.size
    if least == total:
        return x
    table = ((so_far - least) * 255 + (total - least) // 2) // (total - least)
    return np.clip(table, 0, 255)[x]


def halved(x: Array) -> Array:
    if not x.size:  # NumPy does not extend nothing
        return np.zeros([n // 2 for n in x.shape])
    h, w = (n // 2 for n in x.shape)
    p = np.pad(x, 1, "edge")
    down = np.sum([k * p[n : n + 2 * h : 2] for n, k in enumerate((1, 3, 3, 1))], axis=0) / 8
    return np.sum([k * down[:, n : n + 2 * w : 2] for n, k in enumerate((1, 3, 3, 1))], axis=0) / 8


def enlarged(x: Array, shape: tuple[int, ...]) -> Array:
    """Each element between the four around it, at the places of an image of twice the size, also behind its last row."""
    if not x.size:
        return np.zeros(shape)
    for axis, n in enumerate(shape):
        at, last = np.arange(n), x.shape[axis] - 1
        near, far = np.minimum(at // 2, last), np.clip(at // 2 + at % 2 * 2 - 1, 0, last)
        x = 0.75 * x.take(near, axis) + 0.25 * x.take(far, axis)
    return x


def _doubled(a: Arrays, _: Problem) -> Array:
    h, w = a["X"].shape
    return enlarged(a["X"], (2 * h, 2 * w))


def _levels(x: Array) -> list[Array]:
    """An image, a half, a quarter and an eighth of it."""
    levels = [x]
    while len(levels) < 4:
        levels.append(halved(levels[-1]))
    return levels


def _blended(a: Arrays, _: Problem) -> Array:
    """By the pyramids of both images."""
    pyramids = [_levels(a[name]) for name in "ABM"]
    fine = [[v - enlarged(w, v.shape) for v, w in pairwise(levels)] + [levels[-1]] for levels in pyramids[:2]]
    mixed = [w * one + (1 - w) * other for one, other, w in zip(*fine, pyramids[2], strict=True)]
    out = mixed[-1]
    for detail in mixed[-2::-1]:
        out = detail + enlarged(out, detail.shape)
    return out


def _resized_cubic(a: Arrays, p: Problem) -> Array:
    rows = _cubic(a["X"], p.attribute("OH", 0))
    return _cubic(rows.T, p.attribute("OW", 0)).T


def _cubic(x: Array, n: int) -> Array:
    """As many rows, each by Keys' cubic from the four around it."""
    first, part = np.divmod((2 * np.arange(n) + 1) * len(x) - n, 2 * n)
    out = np.zeros((n, x.shape[1]), x.dtype)
    for k in range(-1, 3):
        d = np.abs(part / (2 * n) - k)
        weight = np.where(d <= 1, 1.5 * d**3 - 2.5 * d**2 + 1, -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2)
        out += weight[:, None].astype(x.dtype) * x[np.clip(first + k, 0, len(x) - 1)]
    return out


CROSS = np.zeros((5, 5))
CROSS[2], CROSS[:, 2] = [-1, 2, 0, 2, -1], [-1, 2, 4, 2, -1]
ACROSS = np.array([[0, 0, 0.5, 0, 0], [0, -1, 0, -1, 0], [-1, 4, 5, 4, -1], [0, -1, 0, -1, 0], [0, 0, 0.5, 0, 0]])
OBLIQUE = np.array([[0, 0, -1.5, 0, 0], [0, 2, 0, 2, 0], [-1.5, 0, 6, 0, -1.5], [0, 2, 0, 2, 0], [0, 0, -1.5, 0, 0]])


def _demosaiced(a: Arrays, _: Problem) -> Array:
    """By the four filters of Malvar, He and Cutler (2004), figure 2, divided by 8."""
    x = a["X"]
    filters = (CROSS, ACROSS, ACROSS.T, OBLIQUE)
    cross, across, down, oblique = (ndimage.correlate(x, f / 8, mode="mirror") for f in filters)
    out = np.empty((*x.shape, 3), x.dtype)
    red, right, below, blue = (np.s_[i::2, j::2] for i in (0, 1) for j in (0, 1))
    for place, colours in (
        (red, (x, cross, oblique)),
        (right, (across, x, down)),
        (below, (down, x, across)),
        (blue, (oblique, cross, x)),
    ):
        for c, values in enumerate(colours):
            out[(*place, c)] = values[place]
    return out


def _bilateral(a: Arrays, p: Problem) -> Array:
    x, s, bins = a["X"], p.attribute("s", 8), p.attribute("bins", 8)
    z = np.clip(x, 0, 1) * bins
    rows, columns = np.indices(x.shape)
    at = ((rows + s // 2) // s, (columns + s // 2) // s, np.floor(z + 0.5).astype(int))
    places = np.stack([rows / s, columns / s, z])
    read: list[Array] = []
    for weights in (x, np.ones_like(x)):
        cells = np.zeros((*((n - 1) // s + 2 for n in x.shape), bins + 1), x.dtype)
        np.add.at(cells, at, weights)
        for axis in range(3):
            cells = ndimage.correlate1d(cells, np.array([1, 4, 6, 4, 1]), axis, mode="constant")
        read.append(ndimage.map_coordinates(cells, places, order=1, mode="nearest"))
    return read[0] / read[1]


def _filtered(x: Array, a: Array) -> Array:
    """The recursive filter down columns and up again."""
    y = x.copy()
    for _ in range(2):
        for n in range(1, len(y)):
            y[n] = a * y[n] + (1 - a) * y[n - 1]
        y = y[::-1]
    return y


TAPS = np.array([0.07, 0.131, 0.191, 0.216, 0.191, 0.131, 0.07])


def _gauss(x: Array, t: Array) -> Array:
    """By 7 taps along columns and rows, where all of them are inside."""
    across = ndimage.correlate1d(x, t, 1, mode="nearest")[:, 3:-3]
    return ndimage.correlate1d(across, t, 0, mode="nearest")[3:-3]


def _brightness(x: Array) -> Array:
    """Of three planes."""
    return 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]


def _unsharp_planes(a: Arrays, _: Problem) -> Array:
    g, inside = _brightness(a["X"]), np.s_[..., 3:-3, 3:-3]
    return a["X"][inside] * (1 + (g[inside] - _gauss(g, TAPS)) / (np.abs(g[inside]) + 0.1))


def _harris_planes(a: Arrays, _: Problem) -> Array:
    g = _brightness(a["X"])
    return corners(*(ndimage.sobel(g, axis, mode="nearest")[1:-1, 1:-1] / 12 for axis in (0, 1)))


def _laplacian_pyramid(a: Arrays, _: Problem) -> tuple[Array, ...]:
    levels = _levels(a["X"])
    return (*(fine - _nearest(coarse, fine.shape) for fine, coarse in pairwise(levels)), levels[-1])


def _nearest(x: Array, shape: tuple[int, ...]) -> Array:
    """An image of about twice the size, each element that of half its row and column."""
    rows, columns = (np.minimum(np.arange(n) // 2, last - 1) for n, last in zip(shape, x.shape, strict=True))
    return x[rows][:, columns]


FILTERS: dict[str, Callable[[Arrays, Problem], Outputs]] = {
    "box": lambda a, p: ndimage.uniform_filter(a["X"], 2 * p.attribute("r", 1) + 1, mode="nearest"),
    "separable": separable,
    "unsharp": lambda a, p: a["X"] + a["amount"] * (a["X"] - separable(a, p)),
    "sobel": _sobel,
    "harris": _harris,
    "median": lambda a, _: ndimage.median_filter(a["X"], 3, mode="nearest"),
    "dilated": _dilated(1),
    "dilated_wide": _dilated(8),
    "box_u8": _box_u8,
    "gauss_u8": _gauss_u8,
    "sobel_u8": _sobel_u8,
    "equalized": _equalized,
    "pyramid_down": lambda a, _: halved(a["X"]),
    "pyramid_up": _doubled,
    "resized_cubic": _resized_cubic,
    "blended": _blended,
    "demosaiced": _demosaiced,
    "bilateral": _bilateral,
    "recursive": lambda a, _: _filtered(a["X"], a["a"]),
    "gauss_terms": lambda a, _: _gauss(a["X"], TAPS),
    "gauss_taps": lambda a, _: _gauss(a["X"], a["t"]),
    "unsharp_planes": _unsharp_planes,
    "harris_planes": _harris_planes,
    "laplacian_pyramid": _laplacian_pyramid,
    "recursive_blur": lambda a, _: _filtered(_filtered(a["X"], a["a"]).T, a["a"]).T,
}
"""By the name of the compute."""
