"""References of `solvers.tsched`."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.fft import dct

from tests.foreign.references import Array, Foreign, Given, sized


def lu_in_place(a: Array) -> tuple[Array, Array]:
    a = a.copy()
    for k in range(len(a)):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, np.diag(a).prod()


def ldl(a: Array) -> tuple[Array, Array]:
    c = np.linalg.cholesky(a)
    return c / np.diag(c), np.diag(c) ** 2


def givens(h: Array, b: Array) -> tuple[Array, Array]:
    s = np.column_stack([h, b])
    for k in range(len(h) - 1):
        x, y = s[k, k], s[k + 1, k]
        g = np.array([[x, y], [-y, x]]) / np.hypot(x, y)
        s[k : k + 2] = g @ s[k : k + 2]
    return s[:, :-1], s[:, -1]


def jacobi_sweeps(a: Array) -> tuple[Array, Array]:
    a = a.copy()
    for _ in range(3):
        for p in range(4):
            for q in range(p + 1, 4):
                t = 0.5 * np.arctan2(2 * a[p, q], a[q, q] - a[p, p])
                g = np.eye(4)
                g[p, p] = g[q, q] = np.cos(t)
                g[q, p], g[p, q] = np.sin(t), -np.sin(t)
                a = g @ a @ g.T
    return a, (a**2).sum() - (np.diag(a) ** 2).sum()


def sturm(d: Array, e: Array) -> Array:
    w = linalg.eigvalsh_tridiagonal(d, e[:-1]) if len(d) > 1 else d
    found = []
    for x in w:
        low, high = -20.0, 20.0
        for _ in range(12):
            mid = (low + high) / 2
            low, high = (low, mid) if x < mid else (mid, high)
        found.append((low, high))
    return np.array(found)


def power_iteration(a: Array, x: Array) -> tuple[Array, Array]:
    r = []
    for _ in range(6):
        x = a @ x / np.linalg.norm(a @ x)
        r.append(x @ a @ x)
    return x, np.array(r)


def arnoldi(a: Array, b: Array) -> tuple[Array, Array]:
    v = [b / np.linalg.norm(b)]
    for _ in range(3):
        w = a @ v[-1]
        w = w - sum(q * (q @ w) for q in v)
        v.append(w / np.linalg.norm(w))
    base = np.array(v)
    return base, np.triu(base @ a @ base[:3].T, -1)


def newton_inverse(a: Array) -> Array:
    x = a.T / (np.abs(a).sum(1).max() * np.abs(a).sum(0).max())
    for _ in range(5):
        x = 2 * x - x @ a @ x
    return x


def matrix_root(a: Array) -> tuple[Array, Array]:
    y, z = a, np.broadcast_to(np.eye(2), a.shape)
    for _ in range(4):
        y, z = (y + np.linalg.inv(z)) / 2, (z + np.linalg.inv(y)) / 2
    return y, z


def chebyshev(a: Array, b: Array, low: Array, high: Array) -> Array:
    d, c = (high + low) / 2, (high - low) / 2
    x, r, p, alpha = np.zeros_like(b), b, b, 1 / d
    for t in range(1, 5):
        x = x + alpha * p
        r = b - a @ x
        beta = (0.5 if t == 1 else 0.25) * (c * alpha) ** 2
        alpha = 1 / (d - beta / alpha)
        p = r + beta * p
    return x


def fft_stages(x: Array) -> Array:
    f = np.fft.fft(x[..., 0] + 1j * x[..., 1])
    return np.stack([f.real, f.imag], -1)


def stockham(x: Array) -> Array:
    f = np.fft.fft((x[0] + 1j * x[1]).ravel())
    return np.array([f.real, f.imag]).reshape(2, 2, 2, 2)


def ntt_product(a: Array, b: Array) -> Array:
    full = np.convolve(a, b)
    return (full[:16] + np.append(full[16:], 0)) % 257


def karatsuba(a: Array, b: Array) -> Array:
    return np.append(np.convolve(a, b), 0)


def projections(x: Array, c: Array, s: Array) -> tuple[Array, Array]:
    n, m = len(x), (len(x) - 1) / 2
    p, y = np.zeros((len(c), n)), np.zeros_like(x)
    for a, r, t in np.ndindex(len(c), n, n):
        u = int(np.round((r - m) * c[a] - (t - m) * s[a] + m))
        v = int(np.round((r - m) * s[a] + (t - m) * c[a] + m))
        if 0 <= u < n and 0 <= v < n:
            p[a, r] += x[v, u]
    for a, i, j in np.ndindex(len(c), n, n):
        y[i, j] += p[a, np.clip(int(np.round((j - m) * c[a] + (i - m) * s[a] + m)), 0, n - 1)]
    return p, y


def dominant(given: Given) -> Given:
    a = given["A"] / (1 + np.abs(given["A"]))
    return {**given, "A": a + len(a) * np.eye(len(a))}


def symmetric(given: Given) -> Given:
    a = given["A"] @ given["A"].T / len(given["A"])
    return {**given, "A": a + np.eye(len(a))}


N = sized("N", (4,), (9,), (1,))

SOLVERS = {
    "lu_in_place": Foreign(lu_in_place, N, dominant),
    "gauss_jordan": Foreign(np.linalg.inv, sized("N", (3,), (6,), (1,))),
    "ldl": Foreign(ldl, N, symmetric),
    "triangular_inverse": Foreign(
        lambda l: linalg.solve_triangular(l, np.eye(len(l)), lower=True),
        N,
        lambda g: {"L": np.tril(g["L"]) / 4 + np.eye(len(g["L"]))},
    ),
    "givens": Foreign(givens, sized("N", (4,), (9,), (1,)), lambda g: {**g, "H": np.triu(g["H"], -1)}),
    "jacobi_sweeps": Foreign(jacobi_sweeps, ({},), symmetric),
    "sturm": Foreign(sturm, sized("N", (3,), (7,), (1,))),
    "power_iteration": Foreign(power_iteration, N, symmetric),
    "arnoldi": Foreign(arnoldi, sized("N", (5,), (9,))),
    "newton_inverse": Foreign(newton_inverse, sized("N", (3,), (9,), (1,)), dominant),
    "matrix_root": Foreign(
        matrix_root, sized("B", (2,), (17,), (1,)), lambda g: {"A": g["A"] @ g["A"].swapaxes(1, 2) + np.eye(2)}
    ),
    "chebyshev": Foreign(chebyshev, N, lambda g: {**symmetric(g), "low": np.array(0.9), "high": np.array(5.0)}),
    "bareiss": Foreign(
        lambda a: np.round(np.linalg.det(a)),
        sized("N", (3,), (4,), (1,)),
        lambda g: {"A": g["A"] % 7 + np.eye(len(g["A"]), dtype=int) * 9},
    ),
    "fft_stages": Foreign(fft_stages, sized("B", (2,), (5,), (1,))),
    "stockham": Foreign(stockham, ({},)),
    "ntt_product": Foreign(ntt_product, ({},), lambda g: {n: a % 257 for n, a in g.items()}),
    "cosine_transforms": Foreign(
        lambda x: np.array([dct(x, t) for t in (2, 3, 4)]), sized("B N", (2, 6), (3, 17), (1, 1))
    ),
    "karatsuba": Foreign(karatsuba, sized("N", (3,), (17,), (1,))),
    "projections": Foreign(
        projections,
        sized("N A", (5, 3), (9, 4), (1, 1)),
        lambda g: {
            **g,
            "c": np.cos(g["c"]),
            "s": np.sin(g["c"]),
        },
    ),
}
