"""References of `vision.tsched`."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import ndimage

from tests.foreign.references import Array, Foreign, single, sized


def windows(x: Array, r: int, **how: object) -> Array:
    """The window around each element, in the last two dimensions."""
    return sliding_window_view(np.pad(x, r, **how), (2 * r + 1, 2 * r + 1))  # type: ignore[call-overload]


def lens_blur(left: Array, right: Array) -> tuple[Array, Array]:
    w = left.shape[1]
    costs = []
    for z in range(4):
        moved = right[:, np.clip(np.arange(w) + z, 0, w - 1)]
        costs.append(windows((left - moved) ** 2.0, 1, mode="edge").sum((2, 3)))
    d = np.argmin(costs, 0)
    i, j = np.mgrid[-2:3, -2:3]
    disk = (i * i + j * j)[None, None] <= (d * d)[:, :, None, None]
    near = windows(left, 2, mode="edge")
    return d, (near * disk).sum((2, 3)) / disk.sum((2, 3))


def halves(x: Array) -> Array:
    return (x[::2, ::2] + x[1::2, ::2] + x[::2, 1::2] + x[1::2, 1::2]) / 4


def doubled(x: Array) -> Array:
    return x.repeat(2, 0).repeat(2, 1)


def interpolate(x: Array) -> Array:
    a = np.concatenate([x[..., :3] * x[..., 3:], x[..., 3:]], 2)
    b = halves(a)
    e = b + (1 - b[..., 3:]) * doubled(halves(b))
    f = a + (1 - a[..., 3:]) * doubled(e)
    return f[..., :3] / (f[..., 3:] + single(0.001))


def stencil_chain(x: Array) -> Array:
    i, j = np.mgrid[:5, :5]
    for weights in (i + j + 1, i + 2 * j, 3 * i + j, np.ones((5, 5), int)):
        x = (sliding_window_view(x.astype(np.int64), (5, 5)) * weights).sum((2, 3)) & 0xFFFF
    return x


def max_filter(x: Array) -> Array:
    i, j = np.mgrid[-3:4, -3:4]
    return ndimage.maximum_filter(x, footprint=i * i + j * j <= 9, mode="nearest")


def sliced_affine(x: Array, g: Array) -> Array:
    a, b, c = g.shape[:3]
    out = np.zeros_like(x)
    for y, u in np.ndindex(x.shape[:2]):
        z = np.clip((x[y, u, 0] + 2 * x[y, u, 1] + x[y, u, 2]) / 4, 0, 1) * (c - 1)
        m = np.zeros((3, 4))
        for p, q, r in ((y // 4, u // 4, int(np.floor(z))),):
            for i, j, k in np.ndindex(2, 2, 2):
                weight = 1 - abs(y / 4 - p - i)
                weight *= (1 - abs(u / 4 - q - j)) * (1 - abs(z - r - k))
                m += weight * g[min(p + i, a - 1), min(q + j, b - 1), min(r + k, c - 1)]
        out[y, u] = m[:, :3] @ x[y, u] + m[:, 3]
    return out


def separable_block(x: Array, d: Array, a: Array, p: Array, b: Array) -> Array:
    pad = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    near = sliding_window_view(pad, (3, 3), axis=(1, 2))[:, ::2, ::2]
    deep = np.clip(np.einsum("nyxcij,ijc->nyxc", near, d) + a, 0, 6)
    return np.clip(deep @ p + b, 0, 6)


def bottleneck(x: Array, a: Array, b: Array, d: Array, s: Array) -> Array:
    inner = np.pad(np.maximum(x @ a, 0), ((1, 1), (1, 1), (0, 0)))
    near = sliding_window_view(inner, (3, 3), axis=(0, 1))[::2, ::2]
    middle = np.maximum(np.einsum("yxkij,ijkm->yxm", near, b), 0)
    return np.maximum(middle @ d + x[::2, ::2] @ s, 0)


def slopes(x: Array) -> tuple[Array, Array]:
    p = np.pad(x, 1, mode="edge")
    return p[1:-1, 2:] - p[1:-1, :-2], p[2:, 1:-1] - p[:-2, 1:-1]


def canny(x: Array, low: Array, high: Array) -> Array:
    gx, gy = slopes(x)
    m = np.hypot(gx, gy)
    n = np.zeros_like(m)
    for y in range(1, len(x) - 1):
        for u in range(1, x.shape[1] - 1):
            a, b = gx[y, u], gy[y, u]
            if abs(a) > 2 * abs(b):
                step = 0, 1
            elif abs(b) > 2 * abs(a):
                step = 1, 0
            else:
                step = (1, 1) if a * b > 0 else (1, -1)
            if m[y, u] >= max(m[y - step[0], u - step[1]], m[y + step[0], u + step[1]]):
                n[y, u] = m[y, u]
    return ndimage.binary_dilation(n >= high, np.ones((3, 3)), 4, mask=n >= low) | (n >= high)


def flow(a: Array, b: Array) -> Array:
    gx, gy = (g / 2 for g in slopes(a))
    v = np.zeros((*a.shape, 2))
    p = [np.pad(t, 1) for t in (gx, gy, b - a)]
    for y, x in np.ndindex(a.shape):
        u, w, t = (q[y : y + 3, x : x + 3].ravel() for q in p)
        g = np.array([[u @ u + 0.01, u @ w], [u @ w, w @ w + 0.01]])
        v[y, x] = -np.linalg.solve(g, [u @ t, w @ t])
    return v


def smooth_flow(gx: Array, gy: Array, gt: Array) -> Array:
    v = np.zeros((2, *gx.shape))
    for _ in range(3):
        mean = np.stack([(p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]) / 4
                         for p in (np.pad(q, 1, mode="edge") for q in v)])  # fmt: skip
        error = (gx * v[0] + gy * v[1] + gt) / (1 + gx**2 + gy**2)
        v = mean - np.stack([gx, gy]) * error
    return v


def gradient_cells(x: Array) -> tuple[Array, Array]:
    gx, gy = slopes(x)
    h, w = (n // 4 for n in x.shape)
    c = np.zeros((h, w, 5))
    b = np.clip(np.floor(np.arctan2(gy, gx) % np.pi / np.pi * 5).astype(int), 0, 4)
    for y, u in np.ndindex(x.shape):
        c[y // 4, u // 4, b[y, u]] += np.hypot(gx[y, u], gy[y, u])
    blocks = np.stack([c[:-1, :-1], c[:-1, 1:], c[1:, :-1], c[1:, 1:]], 2)
    return c, blocks / np.sqrt((blocks**2).sum((2, 3), keepdims=True) + 0.0001)


def template_match(x: Array, t: Array) -> tuple[Array, Array]:
    near = sliding_window_view(x, t.shape).astype(float)
    a = near - near.mean((2, 3), keepdims=True)
    b = t - t.mean()
    n2 = t.size**2
    y = t.size * (a * b).sum((2, 3)) / np.sqrt(np.maximum(n2 * (a**2).sum((2, 3)) * (b**2).sum(), 1))
    return y, y.argmax()


HW = sized("H W", (6, 7), (11, 20), (1, 1))

VISION = {
    "lens_blur": Foreign(lens_blur, HW),
    "interpolate": Foreign(
        interpolate, sized("H W", (2, 3), (3, 5), (1, 1)), lambda g: {"X": np.clip(np.abs(g["X"]), 0, 1)}
    ),
    "stencil_chain": Foreign(stencil_chain, sized("H W", (18, 20), (21, 37), (17, 17))),
    "max_filter": Foreign(max_filter, HW),
    "sliced_affine": Foreign(sliced_affine, sized("H W A B C", (6, 7, 3, 3, 4), (9, 17, 3, 5, 3), (1, 1, 1, 1, 1))),
    "separable_block": Foreign(separable_block, sized("N H W C K", (1, 5, 6, 3, 4), (2, 7, 9, 8, 17), (1, 1, 1, 1, 1))),
    "bottleneck": Foreign(bottleneck, sized("H W C M K", (5, 6, 3, 2, 4), (7, 9, 8, 4, 17), (1, 1, 1, 1, 1))),
    "canny": Foreign(canny, HW, lambda g: {**g, "low": np.array(1.0), "high": np.array(2.0)}),
    "flow": Foreign(flow, HW),
    "smooth_flow": Foreign(smooth_flow, HW),
    "gradient_cells": Foreign(gradient_cells, sized("H W", (2, 3), (3, 5), (2, 2))),
    "template_match": Foreign(template_match, sized("H W R S", (6, 7, 3, 2), (11, 20, 4, 5), (2, 2, 2, 2))),
}
