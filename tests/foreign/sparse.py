"""References of `sparse.tsched`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from tests.foreign.references import Array, Foreign, Given, single, sized, within


def coo(given: Given) -> Given:
    return {**given, "row": given["row"] % len(given["y"]), "col": given["col"] % len(given["x"])}


def ell(col: Array, v: Array, x: Array) -> Array:
    return np.einsum("ml,mld->md", np.where(col >= 0, v, 0), x[col])


def dia(offset: Array, v: Array, x: Array) -> Array:
    n = len(x)
    y = np.zeros(n)
    for o, row in zip(offset, v, strict=True):
        for i in range(n):
            if 0 <= i + o < n:
                y[i] += row[i] * x[i + o]
    return y


def starts(count: int, total: int) -> Array:
    """Rows of different lengths, some of none."""
    rng = np.random.default_rng(count * 100 + total)
    return np.array([0, *np.sort(rng.integers(0, total + 1, count - 2)), total])


def spgemm(pa: Array, ca: Array, va: Array, pb: Array, cb: Array, vb: Array) -> Array:
    k = len(pb) - 1
    a = sparse.csr_matrix((va, ca, pa), (len(pa) - 1, k)).toarray()
    return a @ sparse.csr_matrix((vb, cb, pb), (k, 5)).toarray()


def two_sparse(given: Given) -> Given:
    out = dict(given)
    out["pa"] = starts(len(given["pa"]), len(given["ca"]))
    out["pb"] = starts(len(given["pb"]), len(given["cb"]))
    out["ca"] = given["ca"] % (len(given["pb"]) - 1)
    out["cb"] = given["cb"] % 5
    return out


def csc(given: Given) -> Given:
    return {**given, "p": starts(len(given["p"]), len(given["row"])), "row": given["row"] % 7}


def segments(x: Array, i: Array) -> tuple[Array, Array, Array]:
    parts = [x[i == g] for g in range(5)]
    return (
        np.array([p.sum(0) for p in parts]),
        np.array([p.mean(0) if len(p) else np.zeros(x.shape[1]) for p in parts]),
        np.array([p.max(0, initial=-np.inf) for p in parts]),
    )


def graph_attention(start: Array, end: Array, x: Array, a: Array, b: Array) -> Array:
    y = np.zeros_like(x)
    for n in range(len(x)):
        into = start[end == n]
        s = x[into] @ a + x[n] @ b
        w = np.exp(np.where(s > 0, s, single(0.2) * s))
        if len(into):
            y[n] = w / w.sum() @ x[into]
    return y


def edges(given: Given) -> Given:
    n = len(given["X"])
    return {**given, "from": given["from"] % n, "to": given["to"] % n}


def page_rank(start: Array, end: Array) -> Array:
    m = np.zeros((6, 6))
    np.add.at(m, (end, start), 1.0)
    out = m.sum(0)
    m = np.where(out > 0, m / np.where(out > 0, out, 1), 1 / 6)
    return np.linalg.matrix_power(0.85 * m + 0.15 / 6, 4) @ np.full(6, 1 / 6)


def triangles(a: Array) -> Array:
    bits = (a[:, :, None] >> np.arange(32) & 1).reshape(len(a), -1).astype(int)
    n = min(len(a), bits.shape[1])
    return np.einsum("ij,ik,jk->i", bits[:, :n], bits, bits[:n])


def components(start: Array, end: Array) -> Array:
    g = sparse.coo_matrix((np.ones(len(start)), (start, end)), (8, 8))
    _, label = csgraph.connected_components(g, directed=False)
    return np.array([np.flatnonzero(label == label[n])[0] for n in range(8)])


def jagged(start: Array, col: Array, v: Array, order: Array, x: Array) -> Array:
    y = np.zeros(len(order))
    for low, high in pairwise(start):
        for r in range(high - low):
            y[order[r]] += v[low + r] * x[col[low + r]]
    return y


def falling(given: Given) -> Given:
    m, z = len(given["order"]), len(given["col"])
    start = [0]
    width = m
    for _ in range(len(given["start"]) - 1):
        width = min(width, z - start[-1])
        start.append(start[-1] + width)
        width = max(width - 2, 0)
    return {
        **given,
        "start": np.array(start),
        "col": given["col"] % len(given["x"]),
        "order": np.random.default_rng(1).permutation(m),
    }


def csf(p1: Array, c1: Array, p2: Array, c2: Array, v: Array, x: Array) -> Array:
    y = np.zeros((len(p1) - 1, 4, x.shape[1]))
    for a in range(len(p1) - 1):
        for b in range(p1[a], p1[a + 1]):
            for z in range(p2[b], p2[b + 1]):
                y[a, c1[b]] += v[z] * x[c2[z]]
    return y


def compressed(given: Given) -> Given:
    return {
        **given,
        "p1": starts(len(given["p1"]), len(given["c1"])),
        "c1": given["c1"] % 4,
        "p2": starts(len(given["p2"]), len(given["c2"])),
        "c2": given["c2"] % len(given["X"]),
    }


def row_starts(row: Array) -> tuple[Array, Array]:
    n = np.bincount(row, minlength=6)[:6]
    return np.concatenate([[0], np.cumsum(n)]), n


SPARSE = {
    "coo_matvec": Foreign(
        lambda r, c, v, x, y: y + sparse.coo_matrix((v, (r, c)), (len(y), len(x))) @ x,
        sized("Z N M", (20, 5, 7), (33, 16, 9), (1, 1, 1)),
        coo,
    ),
    "ell": Foreign(
        ell,
        sized("M L N D", (5, 3, 7, 4), (9, 4, 5, 17), (1, 1, 1, 1)),
        lambda g: {**g, "col": g["col"] % (len(g["X"]) + 1) - 1},
    ),
    "dia": Foreign(dia, sized("D N", (3, 9), (5, 33), (1, 1)), within(-10, 10, "offset")),
    "csc_matvec": Foreign(
        lambda p, r, v, x: sparse.csc_matrix((v, r, p), (7, len(x))) @ x, sized("N1 Z", (6, 12), (10, 33)), csc
    ),
    "spgemm": Foreign(spgemm, sized("M Z K Y", (4, 7, 3, 9), (7, 20, 6, 17)), two_sparse),
    "sddmm": Foreign(
        lambda r, c, s, a, b: s * (a[r] * b[c]).sum(1),
        sized("Z M K N", (9, 5, 7, 3), (33, 4, 17, 9), (1, 1, 1, 1)),
        lambda g: {**g, "row": g["row"] % len(g["A"]), "col": g["col"] % len(g["B"])},
    ),
    "segments": Foreign(segments, sized("N D", (9, 3), (33, 17), (1, 1)), within(-1, 4, "id")),
    "graph_attention": Foreign(graph_attention, sized("E N D", (12, 5, 3), (33, 9, 17), (1, 1, 1)), edges),
    "page_rank": Foreign(page_rank, sized("E", (9,), (20,)), within(0, 5, "from", "to")),
    "triangles": Foreign(triangles, sized("N W", (9, 1), (40, 2), (1, 1))),
    "components": Foreign(components, sized("E", (5,), (9,), (1,)), within(0, 7, "from", "to")),
    "jagged": Foreign(jagged, sized("L Z M N", (3, 12, 5, 7), (4, 40, 16, 9)), falling),
    "csf": Foreign(csf, sized("A B Z K D", (3, 6, 12, 5, 4), (5, 9, 20, 7, 9)), compressed),
    "row_starts": Foreign(row_starts, sized("Z", (9,), (40,)), lambda g: {"row": np.sort(g["row"] % 6)}),
}
