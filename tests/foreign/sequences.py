"""References of `sequences.tsched`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import expit

from tests.foreign.polybench import definite
from tests.foreign.references import Array, Foreign, Given, sized, within

N = sized("N", (7,), (33,), (1,))


def in_order(step: Callable[[list[Array], int], Array], first: Array, count: int) -> Array:
    """An array whose elements are made of those before."""
    found = [first]
    for i in range(1, count):
        found.append(step(found, i))
    return np.array(found)


def near(i: int, at: Array) -> int:
    """The earlier place that is nearest to a number."""
    return int(np.clip(at, 0, i - 1))


def weighted_jobs(w: Array, p: Array) -> Array:
    return in_order(lambda b, i: np.maximum(b[i - 1], w[i] + b[near(i, p[i])]), np.maximum(w[0], 0), len(w))


def lz_decode(lit: Array, dist: Array) -> Array:
    n = len(lit)
    return in_order(lambda out, i: out[near(i, i - min(dist[i], n))] if dist[i] > 0 else lit[i], lit[0], n)


def tree_rows(x: Array, parent: Array) -> Array:
    return in_order(lambda y, i: 0.5 * y[near(i, parent[i])] + x[i], x[0], len(x))


def links_back(x: Array, links: Array) -> Array:
    """As a tree whose rows are turned round."""
    n = len(x)
    turned = in_order(lambda y, i: np.maximum(y[near(i, n - 1 - links[n - 1 - i])], 0) + x[n - 1 - i], x[-1], n)
    return turned[::-1]


def catalan(x: Array) -> Array:
    return in_order(lambda c, i: x[i] + np.dot(c[:i], c[:i][::-1]), x[0], len(x))


def collatz(a: Array) -> Array:
    count = np.zeros(len(a), np.int64)
    for _ in range(41):
        count += a > 1
        a = np.where(a <= 1, 1, np.where(a % 2 == 0, a // 2, 3 * a + 1))
    return count


def pooled_dense(x: Array, f: Array, w: Array) -> Array:
    c = np.einsum("bqxr,kqr->bkx", sliding_window_view(x, 3, axis=2), f)
    p = np.maximum(c.reshape(*c.shape[:2], -1, 2).max(3), 0)
    return p.reshape(len(x), -1) @ w


def decayed(x: Array, a: Array) -> Array:
    y = x.copy()
    for t in range(1, x.shape[-1]):
        y[..., t] += a[..., t] * y[..., t - 1]
    return y


def eighths(given: Given) -> Given:
    return {n: a / 8 for n, a in given.items()}


SEQUENCES = {
    "weighted_jobs": Foreign(weighted_jobs, N),
    "lz_decode": Foreign(lz_decode, N, within(-2, 6, "dist")),
    "tree_rows": Foreign(tree_rows, sized("N D", (7, 3), (20, 17), (1, 1)), within(-2, 15, "parent")),
    "links_back": Foreign(links_back, N, within(-2, 35, "next")),
    "cholesky_in_rows": Foreign(np.linalg.cholesky, sized("N", (4,), (9,), (1,)), definite),
    "catalan": Foreign(catalan, sized("N", (17,), (33,), (1,)), eighths),
    "collatz": Foreign(collatz, N),
    "pooled_dense": Foreign(pooled_dense, sized("B C H K O", (1, 2, 4, 3, 5), (2, 3, 9, 5, 17))),
    "decayed": Foreign(decayed, sized("B T", (3, 33), (1, 7), (2, 1)), eighths),
    "decayed_back": Foreign(lambda x, a: decayed(x[::-1] ** 2, a[::-1])[::-1], sized("T", (29,), (1,)), eighths),
    "logistic": Foreign(lambda x: (expit(60 * x), 60 * x), sized("N", (20,), (100,))),
}
