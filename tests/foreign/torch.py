"""References of `torch.tsched`."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
from scipy.linalg import block_diag, circulant

from tests.foreign.references import Array, Foreign, Given, single, sized, within


def grid_zeros(x: Array, g: Array) -> Array:
    n, c, h, w = x.shape
    y = np.zeros((n, c, g.shape[1]))
    for b, p in np.ndindex(n, g.shape[1]):
        u, v = ((g[b, p, 0] + 1) * w - 1) / 2, ((g[b, p, 1] + 1) * h - 1) / 2
        for i, j in product((int(np.floor(v)), int(np.floor(v)) + 1), (int(np.floor(u)), int(np.floor(u)) + 1)):
            if 0 <= i < h and 0 <= j < w:
                y[b, :, p] += x[b, :, i, j] * (1 - abs(v - i)) * (1 - abs(u - j))
    return y


def grid_reflected(x: Array, g: Array) -> Array:
    def at(u: float, n: int) -> int:
        u = ((u + 1) * n - 1) / 2
        while not -0.5 <= u <= n - 0.5:
            u = -1 - u if u < -0.5 else 2 * n - 1 - u
        return int(np.clip(np.round(u), 0, n - 1))

    _, h, w = x.shape
    return np.stack([x[:, at(v, h), at(u, w)] for u, v in g], 1)


def cubic(d: float) -> float:
    d = abs(d)
    return 1.25 * d**3 - 2.25 * d**2 + 1 if d <= 1 else -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)


def grid_bicubic(x: Array, g: Array) -> Array:
    c, h, w = x.shape
    y = np.zeros((c, len(g)))
    for p, (a, b) in enumerate(g):
        u, v = (a + 1) / 2 * (w - 1), (b + 1) / 2 * (h - 1)
        for i, j in product(range(-1, 3), range(-1, 3)):
            r, s = int(np.floor(v)) + i, int(np.floor(u)) + j
            y[:, p] += cubic(v - r) * cubic(u - s) * x[:, np.clip(r, 0, h - 1), np.clip(s, 0, w - 1)]
    return y


def affine_grid(t: Array) -> Array:
    y, x = np.meshgrid((2 * np.arange(3) + 1) / 3 - 1, (2 * np.arange(4) + 1) / 4 - 1, indexing="ij")
    return np.einsum("nqk,khw->nhwq", t, np.array([x, y, np.ones_like(x)]))


def unfold_fold(x: Array) -> tuple[Array, Array]:
    c, h, w = x.shape
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    back = np.zeros_like(p)
    oh, ow = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    u = np.zeros((c * 9, oh * ow))
    for i, j in np.ndindex(oh, ow):
        at = (slice(None), slice(2 * i, 2 * i + 3), slice(2 * j, 2 * j + 3))
        u[:, i * ow + j] = p[at].ravel()
        back[at] += p[at]
    return u, back[:, 1:-1, 1:-1]


def adaptive_mean(x: Array) -> Array:
    def parts(n: int, m: int) -> list[slice]:
        return [slice(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]

    _, h, w = x.shape
    return np.stack([np.stack([x[:, r, s].mean((1, 2)) for s in parts(w, 2)], 1) for r in parts(h, 3)], 1)


def lp_pool(x: Array) -> Array:
    out = -(-(x.shape[1] - 3) // 2) + 1
    return np.stack([np.sqrt((x[:, 2 * o : 2 * o + 3] ** 2).sum(1)) for o in range(out)], 1)


def max_unpool(x: Array, at: Array) -> Array:
    y = np.zeros((len(x), 9))
    np.add.at(y, (np.arange(len(x))[:, None], at), x)
    return y


def pixel_shuffle(x: Array) -> tuple[Array, Array]:
    n, c, h, w = x.shape
    return x.reshape(n, c // 9, 3, 3, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 9, h * 3, w * 3), x


def channel_shuffle(x: Array) -> Array:
    n, c, h = x.shape
    return x.reshape(n, 3, c // 3, h).swapaxes(1, 2).reshape(n, c, h)


def conv_transposed(x: Array, f: Array) -> Array:
    n, c2, h = x.shape
    _, o, k = f.shape
    y = np.zeros((n, 2 * o, (h - 1) * 3 + 2 * (k - 1) + 3))
    for c in range(c2):
        first = c // (c2 // 2) * o
        for i in range(h):
            for q in range(k):
                y[:, first : first + o, 3 * i + 2 * q] += x[:, c, i, None] * f[c, :, q]
    return y[:, :, 1 : 1 + (h - 1) * 3 - 2 + 2 * (k - 1) + 3]


def instance_norm(x: Array, g: Array, b: Array) -> Array:
    m, v = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    return (x - m) / np.sqrt(v + single(0.00001)) * g[:, None, None] + b[:, None, None]


def weight_norm(x: Array, v: Array, g: Array) -> tuple[Array, Array]:
    w = g[:, None] * v / np.linalg.norm(v, axis=1, keepdims=True)
    return x @ w.T, w


def renorm(x: Array, most: Array) -> Array:
    s = np.abs(x).sum(1, keepdims=True)
    return np.where(s > most, x * most / (s + 1e-7), x)


def cdist(a: Array, b: Array) -> Array:
    return np.array([[[np.linalg.norm(r - s, p) for s in b] for r in a] for p in (1, 2, 3, np.inf)])


def cosine(a: Array, b: Array) -> tuple[Array, Array]:
    y = (a * b).sum(1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), single(1e-8))
    return y, np.maximum(0, 1 - y).mean()


def triplet(a: Array, p: Array, q: Array) -> Array:
    def far(x: Array, y: Array) -> Array:
        return np.linalg.norm(x - y + 1e-6, axis=1)

    return np.maximum(0, far(a, p) - np.minimum(far(a, q), far(p, q)) + 1).mean()


def divergences(x: Array, t: Array, y: Array) -> tuple[Array, Array]:
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    kept = np.flatnonzero(y != -100)
    right = -logs[kept, np.clip(y[kept], 0, x.shape[1] - 1)].sum()
    ce = (0.9 * right - 0.1 / x.shape[1] * logs[kept].sum()) / max(len(kept), 1)
    return (np.exp(t) * (t - logs)).sum() / len(x), ce + (single(0.1) - 0.1) * 0


def multi_margin(x: Array, y: Array) -> tuple[Array, Array]:
    n, c = x.shape
    loss, g = 0.0, np.zeros_like(x)
    for i, j in np.ndindex(n, c):
        if j != y[i] and (v := 1 - x[i, y[i]] + x[i, j]) > 0:
            loss += v
            g[i, j] += 1
            g[i, y[i]] -= 1
    return np.array(loss / (n * c)), g / (n * c)


def cumulative(x: Array) -> tuple[Array, ...]:
    m = np.maximum.accumulate(x)
    at = [[np.flatnonzero(x[: n + 1, d] == m[n, d])[-1] for d in range(x.shape[1])] for n in range(len(x))]
    return np.logaddexp.accumulate(x), m, np.array(at), np.cumprod(x, 0)


def order_statistics(x: Array, q: Array) -> tuple[Array, ...]:
    s = np.sort(x, 1)
    at = np.argsort(x, 1, kind="stable")
    mid = (x.shape[1] - 1) // 2
    return s[:, mid], at[:, mid], s[:, 0], np.quantile(x, float(q), axis=1)


def bucketize(x: Array, b: Array) -> tuple[Array, ...]:
    r = np.searchsorted(b, x, "right")
    return np.searchsorted(b, x), r, np.bincount(r, minlength=len(b) + 1)


def scatter_reduce(x: Array, at: Array, v: Array) -> tuple[Array, ...]:
    parts = [v[at == m] for m in range(len(x))]
    each = [(r, p) for r, p in zip(x, parts, strict=True)]
    return (
        np.array([r + p.sum(0) for r, p in each]),
        np.array([r * p.prod(0) for r, p in each]),
        np.array([(r + p.sum(0)) / (1 + len(p)) for r, p in each]),
        np.array([np.max([r, *p], axis=0) for r, p in each]),
        np.array([np.min(p, axis=0) if len(p) else r for r, p in each]),
    )


def unique_consecutive(x: Array) -> tuple[Array, ...]:
    starts = np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]]))
    ends = np.append(starts[1:], len(x))
    v, c = np.zeros(len(x), np.int64), np.zeros(len(x), np.int64)
    v[: len(starts)], c[: len(starts)] = x[starts], ends - starts
    return v, c, np.repeat(np.arange(len(starts)), ends - starts), np.array(len(starts))


def differences(y: Array, x: Array) -> tuple[Array, Array, Array]:
    area = [0.0]
    for (a, b), (u, v) in zip(pairwise(y), pairwise(x), strict=True):
        area.append(area[-1] + (a + b) * (v - u) / 2)
    return np.diff(y, n=2), np.gradient(y, x), np.array(area)


def made_matrices(x: Array, a: Array, b: Array) -> tuple[Array, ...]:
    return np.vander(x, increasing=True), circulant(x), block_diag(a, b), np.array(np.tril_indices(len(x)))


def apart(given: Given) -> Given:
    return {**given, "x": np.cumsum(np.abs(given["x"]) + 0.5)}


TORCH = {
    "grid_zeros": Foreign(grid_zeros, sized("N C H W P", (2, 3, 4, 5, 7), (1, 2, 7, 6, 33), (1, 1, 1, 1, 1))),
    "grid_reflected": Foreign(grid_reflected, sized("C H W P", (3, 4, 5, 7), (2, 7, 6, 33), (1, 1, 1, 5))),
    "grid_bicubic": Foreign(grid_bicubic, sized("C H W P", (3, 4, 5, 7), (2, 7, 6, 33), (1, 1, 1, 1))),
    "affine_grid": Foreign(affine_grid, sized("N", (2,), (17,), (1,))),
    "unfold_fold": Foreign(unfold_fold, sized("C H W", (2, 5, 6), (3, 9, 17), (1, 1, 2))),
    "adaptive_mean": Foreign(adaptive_mean, sized("C H W", (3, 7, 5), (2, 17, 33), (1, 3, 2))),
    "lp_pool": Foreign(lp_pool, sized("C L", (2, 8), (3, 33), (1, 3))),
    "max_unpool": Foreign(
        max_unpool,
        sized("C P", (2, 4), (17, 9), (1, 1)),
        lambda g: {**g, "at": np.argsort(np.argsort(g["at"], 1), 1)},
    ),
    "pixel_shuffle": Foreign(pixel_shuffle, sized("N C H W", (2, 2, 3, 4), (1, 3, 5, 17), (1, 1, 1, 1))),
    "channel_shuffle": Foreign(channel_shuffle, sized("N C H", (2, 2, 5), (1, 5, 33), (1, 1, 1))),
    "conv_transposed": Foreign(conv_transposed, sized("N C H O K", (2, 3, 4, 2, 3), (1, 2, 9, 5, 2), (1, 1, 1, 1, 1))),
    "instance_norm": Foreign(instance_norm, sized("N C H W", (2, 3, 4, 5), (1, 2, 7, 17), (1, 1, 1, 1))),
    "weight_norm": Foreign(weight_norm, sized("M K N", (3, 5, 4), (9, 33, 17), (1, 1, 1))),
    "renorm": Foreign(
        renorm, sized("M N", (5, 3), (17, 33), (1, 1)), lambda g: {**g, "most": np.abs(g["most"]) * 3 + 1}
    ),
    "cdist": Foreign(cdist, sized("M D N", (4, 3, 5), (9, 17, 20), (1, 1, 1))),
    "cosine": Foreign(cosine, sized("M D", (5, 3), (17, 33), (1, 1))),
    "triplet": Foreign(triplet, sized("N D", (5, 3), (17, 33), (1, 1))),
    "divergences": Foreign(
        divergences,
        sized("N C", (5, 3), (17, 33), (1, 1)),
        lambda g: {**g, "y": np.where(g["y"] % 4 == 0, -100, g["y"] % g["X"].shape[1])},
    ),
    "multi_margin": Foreign(
        multi_margin, sized("N C", (5, 3), (17, 33), (1, 1)), lambda g: {**g, "y": g["y"] % g["X"].shape[1]}
    ),
    "cumulative": Foreign(cumulative, sized("N D", (6, 3), (17, 20), (1, 1))),
    "order_statistics": Foreign(
        order_statistics, sized("M N", (3, 6), (5, 33), (1, 1)), lambda g: {**g, "q": np.array(0.3)}
    ),
    "bucketize": Foreign(
        bucketize,
        sized("N K", (9, 4), (33, 17), (1, 1)),
        lambda g: {"X": np.round(g["X"]), "B": np.sort(np.round(g["B"]))},
    ),
    "scatter_reduce": Foreign(scatter_reduce, sized("M D N", (5, 3, 7), (9, 17, 20), (1, 1, 1)), within(-1, 8, "at")),
    "unique_consecutive": Foreign(unique_consecutive, sized("N", (9,), (33,), (1,)), within(0, 2, "X")),
    "differences": Foreign(differences, sized("N", (7,), (33,), (2,)), apart),
    "made_matrices": Foreign(made_matrices, sized("N P Q", (4, 2, 3), (9, 5, 4), (1, 1, 1))),
    "matrix_power": Foreign(
        lambda a: np.linalg.matrix_power(a, 11), sized("B N", (2, 3), (3, 7), (1, 1)), lambda g: {"A": g["A"] / 4}
    ),
    "covariances": Foreign(lambda x: (np.cov(x), np.corrcoef(x)), sized("M N", (3, 7), (5, 33), (2, 3))),
}
