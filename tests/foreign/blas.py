"""References of `blas.tsched`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from tests.foreign.references import Array, Foreign, Given, sized


def dominant(given: Given) -> Given:
    """Triangles that are far from singular."""
    out = dict(given)
    for n in ("L", "U"):
        if n in out:
            k = out[n].shape[0]
            out[n] = out[n] / (2 * k) + 2 * np.eye(k)
    return out


def band(given: Given) -> Given:
    a = given["A"] / 4
    a[0] = np.abs(a[0]) + 2
    return {**given, "A": a}


def tbsv(a: Array, b: Array) -> Array:
    k, n = a.shape
    m = np.zeros((n, n))
    for d in range(min(k, n)):
        m += np.diag(a[d, : n - d], -d)
    return linalg.solve_triangular(m, b, lower=True)


def gbmv(a: Array, x: Array, y: Array, alpha: Array, beta: Array) -> Array:
    m, n = len(y), len(x)
    full = np.zeros((m, n))
    for i in range(m):
        for j in range(n):
            d = 2 + i - j
            if 0 <= d < len(a):
                full[i, j] = a[d, j]
    return alpha * (full @ x) + beta * y


def spmv(a: Array, x: Array) -> Array:
    n = len(x)
    full = np.zeros((n, n))
    full[np.tril_indices(n)] = a[: n * (n + 1) // 2]
    return (full + np.tril(full, -1).T) @ x


def complexed(a: Array) -> Any:
    return a[..., 0] + 1j * a[..., 1]


def parts(z: Any) -> Array:
    return np.stack([z.real, z.imag], -1)


def cher2k(a: Array, b: Array, c: Array, alpha: Array, beta: Array) -> Array:
    a, b, z, s = complexed(a), complexed(b), complexed(c), complexed(alpha)
    z = z.copy()
    np.fill_diagonal(z, z.diagonal().real)
    full = s * a @ b.conj().T + np.conj(s) * b @ a.conj().T + beta * z
    return parts(np.where(np.tri(len(z)) > 0, full, complexed(c)))


def cgemm(a: Array, b: Array) -> Array:
    return parts(complexed(a).conj().T @ complexed(b))


def level_one(x: Array) -> tuple[Array, Array, Array]:
    return np.array(np.linalg.norm(x)), np.abs(x).sum(), np.array(np.abs(x).argmax())


def rotated(a: Array, c: Array, s: Array) -> Array:
    a = a.copy()
    for t in range(len(c)):
        i = t % (len(a) - 1)
        g = np.array([[c[t], s[t]], [-s[t], c[t]]])
        a[i : i + 2] = g @ a[i : i + 2]
    return a


def gemm_beta(a: Array, x: Array, c: Array, alpha: Array, beta: Array) -> Array:
    y = alpha * np.matmul(a, x)
    return y if beta == 0 else y + beta * c


def poisoned(given: Given) -> Given:
    return {**given, "C": np.full_like(given["C"], np.nan), "beta": np.array(0.0)}


def syrk_packed(a: Array) -> Array:
    return (a.T @ a)[np.triu_indices(a.shape[1])]


def definite(given: Given) -> Given:
    a = given["A"]
    return {**given, "A": a @ a.T / len(a) + np.eye(len(a))}


def cg(a: Array, b: Array) -> tuple[Array, Array]:
    x, r, p = np.zeros_like(b), b, b
    for _ in range(3):
        alpha = (r @ r) / (p @ a @ p)
        x, r, p = x + alpha * p, r - alpha * (a @ p), b - a @ x + 0.25 * p
    return x, r @ r


def householder(a: Array) -> tuple[Array, Array]:
    beta = -np.copysign(np.linalg.norm(a[:, 0]), a[0, 0])
    v = np.concatenate([[1.0], a[1:, 0] / (a[0, 0] - beta)])
    tau = (beta - a[0, 0]) / beta
    return (np.eye(len(a)) - tau * np.outer(v, v)) @ a, tau


def expm(a: Array) -> Array:
    e, p = np.zeros_like(a), np.eye(len(a))
    for t in range(6):
        e, p = e + p, p @ a / (t + 1)
    return e


def toeplitz_band(t: Array, x: Array) -> Array:
    return linalg.toeplitz(np.where(np.arange(len(t)) <= 3, t, 0)) @ x


def sbmv(a: Array, x: Array) -> Array:
    p = np.pad(x, 2)
    return np.sum([a[:, d] * p[d : d + len(x)] for d in range(5)], axis=0)


N = sized("N", (7,), (19,), (1,))
BLAS = {
    "trsv_upper_unit": Foreign(lambda u, b: linalg.solve_triangular(u, b, unit_diagonal=True), N, dominant),
    "trsv_lower_turned": Foreign(lambda l, b: linalg.solve_triangular(l, b, lower=True, trans=1), N, dominant),
    "trsm_right": Foreign(
        lambda l, b, a: linalg.solve_triangular(l, a * b.T, lower=True).T,
        sized("N M", (5, 9), (17, 3), (1, 1)),
        dominant,
    ),
    "tbsv": Foreign(tbsv, sized("K N", (2, 11), (3, 20), (1, 1)), band),
    "gbmv": Foreign(gbmv, sized("D N M", (5, 9, 11), (4, 17, 16), (3, 1, 1))),
    "spmv": Foreign(spmv, sized("N P", (7, 28), (16, 136), (1, 1))),
    "cher2k": Foreign(cher2k, sized("N K", (5, 3), (17, 9), (1, 1))),
    "cgemm_3m": Foreign(cgemm, sized("K M N", (5, 3, 7), (9, 17, 16), (1, 1, 1))),
    "level_one": Foreign(level_one, sized("N", (37,), (256,), (1,))),
    "rotated": Foreign(rotated, sized("N M T", (5, 3, 7), (4, 17, 3), (2, 1, 1))),
    "gemm_beta": Foreign(gemm_beta, sized("B M K N", (2, 5, 7, 9), (1, 16, 3, 17)), poisoned),
    "syrk_packed": Foreign(syrk_packed, sized("K N", (5, 6), (3, 11), (1, 1))),
    "cg": Foreign(cg, sized("N", (1,), (5,), (17,)), definite),
    "householder": Foreign(householder, sized("M N", (4, 6), (16, 2), (1, 0))),
    "strassen": Foreign(lambda a, b: a @ b, sized("N", (3,), (8,), (1,))),
    "toeplitz_band": Foreign(toeplitz_band, sized("N", (9,), (33,), (1,))),
    "sbmv": Foreign(sbmv, sized("N", (9,), (33,), (1,))),
    "expm": Foreign(expm, sized("N", (5,), (8,), (1,))),
}
