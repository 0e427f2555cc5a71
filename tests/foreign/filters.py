"""References of `filters.tsched`."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from tests.foreign.references import Array, Foreign, single, sized
from tests.foreign.vision import HW, windows


def diffusion(x: Array) -> Array:
    for _ in range(3):
        p = np.pad(x, 1, mode="edge")
        d = np.array([p[1:-1, :-2], p[1:-1, 2:], p[:-2, 1:-1], p[2:, 1:-1]]) - x
        x = x + 0.2 * (d * np.exp(-(d**2))).sum(0)
    return x


def guided(x: Array, g: Array) -> Array:
    n = windows(np.ones_like(x), 1).sum((2, 3))

    def mean(t: Array) -> Array:
        return windows(t, 1).sum((2, 3)) / n

    a = (mean(g * x) - mean(g) * mean(x)) / (np.maximum(mean(g * g) - mean(g) ** 2, 0) + single(0.1))
    return mean(a) * g + mean(mean(x) - a * mean(g))


def divergence(p: Array) -> Array:
    return np.diff(p[0], axis=0, prepend=0) + np.diff(p[1], axis=1, prepend=0)


def total_variation(x: Array, weight: Array) -> Array:
    p = np.zeros((2, *x.shape))
    for _ in range(3):
        d = divergence(p) - x / weight
        g = np.stack([np.diff(d, axis=0, append=d[-1:]), np.diff(d, axis=1, append=d[:, -1:])])
        p = (p + 0.25 * g) / (1 + np.abs(p))
    return x - weight * divergence(p)


def deblurred(x: Array, f: Array) -> Array:
    s = x
    for _ in range(2):
        ratio = x / (windows(s, 1, constant_values=1) * f).sum((2, 3))
        s = s * (windows(ratio, 1, constant_values=1) * f[::-1, ::-1]).sum((2, 3))
    return s


def blended_gradients(s: Array, t: Array, m: Array) -> Array:
    cross = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    inner = np.zeros_like(m)
    inner[1:-1, 1:-1] = m[1:-1, 1:-1]
    u = t
    for _ in range(4):
        v = ndimage.convolve(u, cross, mode="constant") + 4 * s - ndimage.convolve(s, cross, mode="constant")
        u = np.where(inner, v / 4, t)
    return u


def thinned(x: Array) -> Array:
    for half in range(2):
        y = x.copy()
        for i in range(1, len(x) - 1):
            for j in range(1, x.shape[1] - 1):
                around = int(x[i - 1 : i + 2, j - 1 : j + 2].sum()) - x[i, j]
                last = x[i, j - 1] if half else x[i + 1, j]
                if around >= 2 and x[i - 1, j] * x[i, j + 1] * last == 0:
                    y[i, j] = 0
        x = y
    return x


def chamfer(x: Array) -> Array:
    h, w = x.shape
    d = np.pad(np.where(x, 0, 1000), 1, constant_values=1000)
    for order, sign in ((range(h * w), -1), (range(h * w)[::-1], 1)):
        for p in order:
            i, j = p // w + 1, p % w + 1
            steps = ((0, sign, 3), (sign, 0, 3), (sign, sign, 4), (sign, -sign, 4))
            near = [d[i + a, j + b] + c if d[i + a, j + b] < 1000 else 1000 for a, b, c in steps]
            d[i, j] = min(d[i, j], *near)
    return np.minimum(d[1:-1, 1:-1], 1000)


def moments(x: Array) -> tuple[Array, Array]:
    y, u = np.mgrid[: x.shape[0], : x.shape[1]].astype(float)
    cy, cx = (x * y).sum() / x.sum(), (x * u).sum() / x.sum()
    m = np.array([[(x * (y - cy) ** i * (u - cx) ** j).sum() for j in range(3)] for i in range(3)])
    n = m / x.sum() ** (1 + np.add.outer(np.arange(3), np.arange(3)) / 2)
    return m, np.array([n[2, 0] + n[0, 2], (n[2, 0] - n[0, 2]) ** 2 + 4 * n[1, 1] ** 2, n[2, 2]])


FILTERS = {
    "diffusion": Foreign(diffusion, HW),
    "guided": Foreign(guided, HW),
    "total_variation": Foreign(total_variation, HW, lambda g: {**g, "weight": np.array(0.7)}),
    "deblurred": Foreign(deblurred, HW, lambda g: {n: np.abs(a) + 0.25 for n, a in g.items()}),
    "blended_gradients": Foreign(blended_gradients, HW),
    "thinned": Foreign(thinned, HW, lambda g: {"X": (g["X"] % 4 > 0).astype(np.int64)}),
    "chamfer": Foreign(chamfer, HW, lambda g: {"X": g["X"] & (np.arange(g["X"].shape[1]) % 3 == 0)}),
    "moments": Foreign(moments, sized("H W", (4, 5), (9, 17), (1, 2)), lambda g: {"X": np.abs(g["X"]) + 0.25}),
}
