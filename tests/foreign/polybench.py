"""References of `polybench.tsched`."""

from __future__ import annotations

from functools import reduce

import numpy as np
from scipy import linalg, ndimage, signal
from scipy.sparse import csgraph

from tests.foreign.references import Array, Foreign, Given, single, sized

N = sized("N", (7,), (40,))
NM = sized("N M", (5, 3), (20, 33))


def definite(given: Given) -> Given:
    """A matrix of which every leading part can be divided by: what is on the diagonal is larger than the rest of its row."""
    a = given["A"]
    return {**given, "A": (a + a.T) / 8 + len(a) * np.eye(len(a))}


def dominant(given: Given) -> Given:
    first = next(iter(given))
    return {**given, first: given[first] / 8 + len(given[first]) * np.eye(len(given[first]))}


def gemver(
    a: Array, u: Array, v: Array, p: Array, q: Array, y: Array, z: Array, s: Array, t: Array
) -> tuple[Array, ...]:
    b = a + np.outer(u, v) + np.outer(p, q)
    x = t * (b.T @ y) + z
    return b, x, s * (b @ x)


def symmetric(a: Array) -> Array:
    return np.tril(a) + np.tril(a, -1).T


def lower_only(c: Array, new: Array) -> Array:
    return np.tril(new) + np.triu(c, 1)


def correlation(x: Array) -> Array:
    return np.corrcoef(x, rowvar=False)


def stencil(kernel: Array, steps: int, a: Array) -> Array:
    """That many steps of a correlation with `kernel` everywhere but at the border."""
    inner = (slice(1, -1),) * a.ndim

    def step(x: Array, _: int) -> Array:
        out = x.copy()
        out[inner] = ndimage.correlate(x, kernel, mode="constant")[inner]
        return out

    return reduce(step, range(steps), a)


def cross(rank: int, centre: float, beside: float) -> Array:
    """A kernel of 3 elements along each axis: `centre`, and `beside` next to it."""
    out = beside * ndimage.generate_binary_structure(rank, 1).astype(float)
    out[(1,) * rank] = centre
    return out


def fdtd(e: Array, fict: Array) -> Array:
    ex, ey, hz = e.copy()
    for now in fict:
        ey[1:] -= 0.5 * np.diff(hz, axis=0)
        ey[0] = now
        ex[:, 1:] -= 0.5 * np.diff(hz, axis=1)
        hz[:-1, :-1] -= single(0.7) * (np.diff(ex, axis=1)[:-1] + np.diff(ey, axis=0)[:, :-1])
    return hz


def in_place_lu(a: Array) -> Array:
    """Without pivots, which the matrix does not need: from Cholesky's factors, or by Schur complements."""
    a = a.copy()
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def shortest(w: Array) -> Array:
    return csgraph.floyd_warshall(w)


def distances(given: Given) -> Given:
    w = np.abs(given["W"]) + 0.25
    np.fill_diagonal(w, 0)
    return {"W": w}


def deriche(x: Array, a: Array, b: Array) -> Array:
    def along(rows: Array) -> Array:
        first = rows[:, :1]
        made = signal.lfilter([float(a)], [1, -float(b)], rows[:, 1:], axis=1, zi=float(b) * first)[0]
        return np.concatenate([first, made], 1)

    # Backwards each element is made of the input behind it, so the last counts twice.
    turned = np.concatenate([x[:, -1:], x[:, :0:-1]], 1)
    return along(x) + along(turned)[:, ::-1]


def halved(given: Given) -> Given:
    return {**given, "a": np.array(0.5), "b": np.array(0.25)}


def adi(u: Array, a: Array, b: Array) -> Array:
    """A tridiagonal system for each row, but for its first and last unknown."""
    n = u.shape[1]
    p, q = np.zeros(n), u.copy()
    for j in range(1, n):
        p[j] = -a / (a * p[j - 1] + b)
        q[:, j] = (u[:, j] - a * q[:, j - 1]) / (a * p[j - 1] + b)
    v = q.copy()
    for j in range(n - 2, -1, -1):
        v[:, j] = p[j] * v[:, j + 1] + q[:, j]
    return v


def tridiagonal(given: Given) -> Given:
    return {**given, "a": np.array(-1.0), "b": np.array(4.0)}


def decaying(given: Given) -> Given:
    """Correlations that grow smaller with the distance, so that no step divides by something near 0."""
    r = given["r"]
    return {"r": r * 0.2 / (1 + np.arange(len(r)))}


def durbin(r: Array) -> Array:
    apart = np.abs(np.subtract.outer(np.arange(len(r)), np.arange(len(r))))
    return np.linalg.solve(np.concatenate([[1.0], r[:-1]])[apart], -r)


def gramschmidt(a: Array) -> tuple[Array, Array]:
    q, r = np.linalg.qr(a)
    sign = np.sign(np.diag(r))
    return q * sign, r * sign[:, None]


def tall(given: Given) -> Given:
    return {"A": given["A"] + 4 * np.eye(*given["A"].shape)}


def bases(given: Given) -> Given:
    return {"q": given["q"] % 4}


def nussinov(q: Array) -> Array:
    n = len(q)
    t = np.zeros((n, n), np.int64)
    for i in range(n - 2, -1, -1):
        for j in range(i + 1, n):
            pair = t[i + 1, j - 1] + (i < j - 1 and q[i] + q[j] == 3)
            t[i, j] = max([t[i, j - 1], t[i + 1, j], pair, *(t[i, k] + t[k + 1, j] for k in range(i + 1, j))])
    return t


def seidel(a: Array) -> Array:
    a = a.copy()
    for _ in range(2):
        for i in range(1, len(a) - 1):
            for j in range(1, len(a) - 1):
                a[i, j] = a[i - 1 : i + 2, j - 1 : j + 2].sum() / 9
    return a


def integral(x: Array) -> Array:
    return x.cumsum(0).cumsum(1)


POLYBENCH: dict[str, Foreign] = {
    "two_mm": Foreign(
        lambda a, b, c, d, s, t: s * (a @ b @ c) + t * d, sized("M K N L", (3, 5, 2, 7), (5, 17, 20, 33))
    ),
    "three_mm": Foreign(lambda a, b, c, d: (a @ b) @ (c @ d), sized("M K N P L", (3, 5, 2, 7, 4), (5, 17, 20, 9, 33))),
    "atax": Foreign(lambda a, x: a.T @ (a @ x), sized("M N", (3, 5), (17, 70))),
    "bicg": Foreign(lambda a, p, r: (a @ p, r @ a), sized("M N", (3, 5), (17, 70))),
    "mvt": Foreign(lambda a, x, y, u, v: (x + a @ u, y + v @ a), N),
    "gemver": Foreign(gemver, N),
    "gesummv": Foreign(lambda a, b, x, s, t: s * (a @ x) + t * (b @ x), sized("N", (17,), (40,))),
    "symm": Foreign(lambda a, b, c, s, t: s * (symmetric(a) @ b) + t * c, sized("M N", (3, 5), (17, 40))),
    "syrk": Foreign(lambda a, c, s, t: lower_only(c, s * (a @ a.T) + t * c), NM),
    "syr2k": Foreign(lambda a, b, c, s, t: lower_only(c, s * (a @ b.T + b @ a.T) + t * c), NM),
    "trmm": Foreign(lambda a, b, s: s * ((np.tril(a, -1) + np.eye(len(a))).T @ b), sized("M N", (3, 5), (17, 40))),
    "doitgen": Foreign(lambda a, c: a @ c, sized("R Q P", (2, 3, 5), (3, 5, 33))),
    "covariance": Foreign(lambda x: np.cov(x, rowvar=False), NM),
    "correlation": Foreign(correlation, NM),
    "jacobi_1d": Foreign(lambda a: stencil(np.full(3, single(0.33333)), 4, a), sized("N", (3,), (100,))),
    "jacobi_2d": Foreign(lambda a: stencil(cross(2, single(0.2), single(0.2)), 3, a), sized("N", (5,), (33,))),
    "heat_3d": Foreign(lambda a: stencil(cross(3, 1 - 6 / 8, 1 / 8), 2, a), sized("N", (4,), (17,))),
    "fdtd_2d": Foreign(fdtd, sized("N M T", (3, 4, 2), (5, 33, 3))),
    "floyd_warshall": Foreign(shortest, N, distances),
    "lu": Foreign(in_place_lu, N, dominant),
    "cholesky": Foreign(np.linalg.cholesky, N, definite),
    "trisolv": Foreign(lambda a, b: linalg.solve_triangular(a, b, lower=True), N, dominant),
    "ludcmp": Foreign(np.linalg.solve, N, dominant),
    "deriche_rows": Foreign(deriche, sized("M N", (2, 5), (17, 33)), halved),
    "adi_sweep": Foreign(adi, sized("M N", (2, 5), (17, 33)), tridiagonal),
    "durbin": Foreign(durbin, N, decaying),
    "gramschmidt": Foreign(gramschmidt, sized("M N", (5, 3), (33, 17)), tall),
    "nussinov": Foreign(nussinov, sized("N", (7,), (12,)), bases),
    "seidel_2d": Foreign(seidel, sized("N", (4,), (12,))),
    "integral_image": Foreign(integral, sized("M N", (2, 5), (17, 33))),
}
