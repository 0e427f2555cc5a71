"""References of `orders.tsched`."""

from __future__ import annotations

from itertools import groupby, pairwise

import numpy as np

from tests.foreign.references import Array, Foreign, Given, sized, within


def run_lengths(x: Array) -> tuple[Array, Array, Array]:
    runs = [(v, len(list(g))) for v, g in groupby(x)]
    length, value = np.zeros(len(x), int), np.zeros(len(x), int)
    for r, (v, n) in enumerate(runs):
        length[r], value[r] = n, v
    return length, value, x


def segmented(x: Array, flag: Array) -> tuple[Array, ...]:
    starts = [0, *(n for n in range(1, len(x)) if flag[n]), len(x)]
    parts = [x[a:b] for a, b in pairwise(starts)]
    p = np.zeros_like(x)
    for n in range(1, len(x)):
        p[n] = 0 if flag[n] else x[n - 1]
    return (
        np.concatenate([np.cumsum(q, 0) for q in parts]),
        np.concatenate([np.maximum.accumulate(q) for q in parts]),
        p,
    )


def largest_part(x: Array) -> tuple[Array, Array, Array]:
    n = len(x)
    sums = {(a, b): x[a : b + 1].sum() for a in range(n) for b in range(a, n)}
    best = max(sums.values())
    last = min(b for (_, b), s in sums.items() if s == best)
    first = max(a for (a, b), s in sums.items() if s == best and b == last)
    return np.array(best), np.array(first), np.array(last)


def walls(h: Array) -> tuple[Array, Array, Array]:
    n = len(h)
    water = sum(min(h[: i + 1].max(), h[i:].max()) - h[i] for i in range(n))
    before = [max((k for k in range(i) if h[k] > h[i]), default=-1) for i in range(n)]
    after = [min((k for k in range(i + 1, n) if h[k] > h[i]), default=n) for i in range(n)]
    return np.array(water), np.arange(n) - before, np.array(after)


def radix_sort(k: Array) -> tuple[Array, Array]:
    at = np.argsort(k, kind="stable")
    return k[at], at


def counting_sort(k: Array) -> tuple[Array, Array]:
    at = np.argsort(k, kind="stable")
    return k[at], np.argsort(at)


def batcher() -> Array:
    """The partner of each place in the stages of the network for 8."""
    pairs = np.tile(np.arange(8), (6, 1))
    stage = 0
    p = 1
    while p < 8:
        k = p
        while k >= 1:
            for j in range(k % p, 8 - k, 2 * k):
                for i in range(k):
                    if i + j + k < 8 and (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        pairs[stage, i + j], pairs[stage, i + j + k] = i + j + k, i + j
            stage += 1
            k //= 2
        p *= 2
    return pairs


def sequences_of(x: Array) -> tuple[Array, Array, Array]:
    n = len(x)
    length = np.ones(n, int)
    for i in range(n):
        length[i] = 1 + max((length[k] for k in range(i) if x[k] < x[i]), default=0)
    wrong = sum(x[i] > x[j] for i in range(n) for j in range(i + 1, n))
    records = sum(i == 0 or x[i] > x[:i].max() for i in range(n))
    return length, np.array(wrong), np.array(records)


def pattern_search(t: Array, p: Array) -> tuple[Array, Array, Array]:
    d = [((p != 0) & (t[n : n + len(p)] != p)).sum() for n in range(len(t) - len(p) + 1)]
    hit = np.equal(np.array(d), 0)
    return np.array(d), hit, hit.sum()


def borders(p: Array) -> tuple[Array, Array]:
    n = len(p)
    f = [max((k for k in range(1, i + 1) if (p[:k] == p[i + 1 - k : i + 1]).all()), default=0) for i in range(n)]
    z = [next((k for k in range(n - d) if p[k] != p[d + k]), n - d) for d in range(n)]
    return np.array(f), np.array(z)


def suffixes(x: Array) -> Array:
    order = sorted(range(len(x)), key=lambda i: tuple(x[i:]))
    return np.argsort(order)


def banded_warping(a: Array, b: Array) -> Array:
    n = len(a)
    d = np.full((n + 1, n + 1), np.inf)
    d[0, 0] = 0
    for i in range(n):
        for j in range(max(0, i - 2), min(n, i + 3)):
            d[i + 1, j + 1] = abs(a[i] - b[j]) + min(d[i, j], d[i, j + 1], d[i + 1, j])
    return d[n, n]


def bellman_ford(start: Array, end: Array, w: Array) -> tuple[Array, Array]:
    d = np.full(6, 100000)
    d[0] = 0
    for t in range(6):
        new = d.copy()
        for a, b, c in zip(start, end, w, strict=True):
            if d[a] < 100000:
                new[b] = min(new[b], d[a] + c)
        if t == 5:
            return d, np.array((new < d).any())
        d = new
    raise AssertionError


def closure(a: Array) -> Array:
    m = (a[:, None].astype(np.int64) >> np.arange(32) & 1)[:, :9].astype(bool) | np.eye(9, dtype=bool)
    full = np.linalg.matrix_power(m.astype(object), 16) > 0
    high = a.astype(np.int64) >> 9
    reach = [(full[i].astype(int) << np.arange(9)).sum() for i in range(9)]
    return np.array([r | (np.bitwise_or.reduce(high[full[i].astype(bool)]) << 9) for i, r in enumerate(reach)])


def spanning_tree(w: Array) -> tuple[Array, Array]:
    n = len(w)
    inside, order, total = [0], np.zeros(n, int), 0.0
    for t in range(1, n):
        near = {k: min(w[i, k] for i in inside) for k in range(n) if k not in inside}
        k = min(near, key=near.__getitem__)
        total += near[k]
        order[k] = t
        inside.append(k)
    return np.array(total), order


def sandpile(x: Array) -> tuple[Array, Array]:
    y = x
    for _ in range(4):
        p = np.pad(y // 4, 1)
        y = y % 4 + p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
    return y, x.sum() - y.sum()


def ant(x: Array) -> tuple[Array, Array]:
    x = x.copy()
    h, w = x.shape
    place = [0, 0, 0]
    for _ in range(9):
        y, u, look = place
        look = (look + (1 if x[y, u] else 3)) % 4
        x[y, u] = not x[y, u]
        y += {0: 1, 2: -1}.get(look, 0)
        u += {1: 1, 3: -1}.get(look, 0)
        place = [y % h, u % w, look]
    return x, np.array(place)


def places(k: Array, a: Array) -> Array:
    return (k[None].astype(object) * (a[:, None].astype(object) | 1) % 2**32 >> 27).astype(int)


def sketches(k: Array, q: Array, a: Array) -> tuple[Array, ...]:
    h, g = places(k, a), places(q, a)
    c = np.array([np.bincount(row, minlength=32) for row in h])
    found = np.take_along_axis(c, g, 1)
    return ((c > 0) << np.arange(32)).sum(1), c, found.min(0) > 0, found.min(0)


def distinct(k: Array, a: Array) -> tuple[Array, ...]:
    h = (k ^ k >> 15).astype(object) * 2246822519 % 2**32
    m = np.zeros((len(k), 16), int)
    for (s, _), x in np.ndenumerate(h):
        m[s, x >> 28] = max(m[s, x >> 28], 32 - (x * 16 % 2**32).bit_length() + 1)
    least = np.array([[min((x ^ x >> 13) * (int(b) | 1) % 2**32 for x in row) for b in a] for row in h])
    e = 0.673 * 256 / (2.0**-m).sum(1)
    return m, e, (least[:, None] == least[None]).mean(2)


def wide(given: Given) -> Given:
    return {n: a * 2654435769 % 2**32 for n, a in given.items()}


def symmetric(given: Given) -> Given:
    return {"W": np.abs(given["W"] + given["W"].T)}


N = sized("N", (9,), (33,), (1,))

ORDERS = {
    "run_lengths": Foreign(run_lengths, N, within(0, 2, "X")),
    "segmented": Foreign(segmented, sized("N D", (9, 2), (33, 5), (1, 1))),
    "largest_part": Foreign(largest_part, N),
    "walls": Foreign(walls, N),
    "radix_sort": Foreign(radix_sort, sized("N", (7,), (17,), (1,))),
    "counting_sort": Foreign(counting_sort, N, within(0, 5, "K")),
    "merged_rows": Foreign(
        lambda a, b: np.sort(np.concatenate([a, b])),
        sized("M N", (5, 7), (33, 9), (1, 1)),
        lambda g: {n: np.sort(np.round(a)) for n, a in g.items()},
    ),
    "merge_network": Foreign(
        lambda x, _: np.sort(x, 1), sized("B", (3,), (17,), (1,)), lambda g: {**g, "pair": batcher()}
    ),
    "sequences_of": Foreign(sequences_of, N),
    "pattern_search": Foreign(pattern_search, sized("N M", (9, 2), (33, 3), (1, 1)), within(0, 2, "T", "P")),
    "borders": Foreign(borders, N, within(0, 1, "P")),
    "suffixes": Foreign(suffixes, sized("N", (9,), (13,), (1,)), within(0, 1, "X")),
    "banded_warping": Foreign(banded_warping, sized("N", (5,), (9,), (1,))),
    "bellman_ford": Foreign(
        bellman_ford,
        sized("E", (9,), (20,), (1,)),
        lambda g: {"from": g["from"] % 6, "to": g["to"] % 6, "w": g["w"] % 9 - 1},
    ),
    "closure": Foreign(closure, ({},), lambda g: {"A": (1 << g["A"] % 9) | (1 << g["A"] % 7)}),
    "spanning_tree": Foreign(spanning_tree, sized("N", (5,), (9,), (1,)), symmetric),
    "sandpile": Foreign(sandpile, sized("H W", (4, 5), (9, 17), (1, 1)), lambda g: {"X": g["X"] % 16}),
    "ant": Foreign(ant, sized("H W", (3, 4), (5, 4), (1, 1))),
    "sketches": Foreign(sketches, sized("N M R", (9, 5, 3), (33, 17, 2), (1, 1, 1)), wide),
    "distinct": Foreign(distinct, sized("S N R", (3, 9, 4), (2, 33, 5), (1, 1, 1)), wide),
}
