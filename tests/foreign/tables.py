"""References of `tables.tsched`."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np

from tests.foreign.references import Array, Foreign, Given, sized, within


def rising(a: Array) -> tuple[Array, Array, Array]:
    n = len(a)
    length, before = np.ones(n, int), np.full(n, -1)
    for i in range(n):
        for j in range(i):
            if a[j] < a[i] and length[j] + 1 >= length[i]:
                length[i], before[i] = length[j] + 1, j
    # the last j of the right length
    for i in range(n):
        found = [j for j in range(i) if a[j] < a[i] and length[j] == length[i] - 1]
        before[i] = max(found, default=-1)
    return length, length.max(), before


def unbounded_knapsack(w: Array, v: Array) -> Array:
    best = [0]
    for c in range(1, 31):
        best.append(max([0, *(best[c - int(a)] + int(b) for a, b in zip(w, v, strict=True) if 0 < a <= c)]))
    return np.array(best)


def coins(w: Array) -> Array:
    ways = [1] + [0] * 40
    for x in map(int, w):
        if x > 0:
            for c in range(x, 41):
                ways[c] += ways[c - x]
    return np.array(ways)


def gotoh(a: Array, b: Array) -> Array:
    m, n, low = len(a), len(b), -1000
    h, e, f = (np.full((m + 1, n + 1), low) for _ in range(3))
    h[0, 0] = 0
    for i in range(m + 1):
        for j in range(n + 1):
            if i:
                e[i, j] = max(h[i - 1, j] - 4, e[i - 1, j] - 1)
            if j:
                f[i, j] = max(h[i, j - 1] - 4, f[i, j - 1] - 1)
            if i or j:
                both = h[i - 1, j - 1] + (2 if a[i - 1] == b[j - 1] else -1) if i and j else low
                h[i, j] = max(both, e[i, j], f[i, j])
    return h[m, n]


def warped(a: Array, b: Array) -> tuple[Array, Array]:
    d = np.full((len(a) + 1, len(b) + 1), np.inf)
    d[0, 0] = 0
    for i in range(len(a)):
        for j in range(len(b)):
            d[i + 1, j + 1] = abs(a[i] - b[j]) + min(d[i, j + 1], d[i + 1, j], d[i, j])
    return d[-1, -1], d[1:, 1:]


def ctc(x: Array, y: Array) -> Array:
    """The sum over all paths that collapse to the target."""
    total = 0.0
    for path in product(range(x.shape[1]), repeat=len(x)):
        short = [p for n, p in enumerate(path) if (n == 0 or p != path[n - 1]) and p != 0]
        if short == list(y):
            total += np.exp(sum(x[t, p] for t, p in enumerate(path)))
    with np.errstate(divide="ignore"):
        return -np.log(total)


def likely(given: Given) -> Given:
    x = given["X"]
    return {"X": x - np.log(np.exp(x).sum(1, keepdims=True)), "y": given["y"] % (x.shape[1] - 1) + 1}


def forward_backward(p: Array, a: Array, e: Array) -> tuple[Array, Array]:
    """The posterior by summing over all paths."""
    t, s = e.shape
    g = np.zeros((t, s))
    for path in product(range(s), repeat=t):
        w = p[path[0]] * np.prod([e[n, q] for n, q in enumerate(path)])
        w *= np.prod([a[x, y] for x, y in pairwise(path)])
        for n, q in enumerate(path):
            g[n, q] += w
    g /= g.sum(1, keepdims=True)
    return g, g.argmax(1)


def stochastic(given: Given) -> Given:
    p, a = np.abs(given["P"]) + 0.1, np.abs(given["A"]) + 0.1
    return {"P": p / p.sum(), "A": a / a.sum(1, keepdims=True), "E": np.abs(given["E"]) + 0.1}


def cyk(word: Array, unary: Array, rule: Array) -> Array:
    n = len(word)
    t = np.zeros((n, n), np.int64)
    for i in range(n):
        t[i, i] = unary[word[i]]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            for k in range(i, j):
                for a, b, c in rule:
                    if t[i, k] >> b & 1 and t[k + 1, j] >> c & 1:
                        t[i, j] |= 1 << a
    return t


def grammar(given: Given) -> Given:
    return {"word": given["word"] % len(given["unary"]), "unary": 1 << given["unary"] % 6, "rule": given["rule"] % 6}


def subset_sums(a: Array) -> Array:
    bits = 1
    for x in map(int, a):
        bits |= bits << x
    return np.array([bits >> 32 * w & 0xFFFFFFFF for w in range(3)])


def bit_parallel(p: Array, t: Array) -> Array:
    """Least distance of the pattern to any part of the text that ends at each place."""
    d = list(range(len(p) + 1))
    out = []
    for c in t:
        new = [0]
        for i, q in enumerate(p):
            new.append(min(d[i] + (q != c), d[i + 1] + 1, new[i] + 1))
        d = new
        out.append(d[-1])
    return np.array(out)


def seam(e: Array) -> Array:
    h, w = e.shape
    d = e.astype(int).copy()
    for y in range(1, h):
        for x in range(w):
            d[y, x] += d[y - 1, max(x - 1, 0) : x + 2].min()
    c = [int(d[-1].argmin())]
    for y in reversed(range(h - 1)):
        x = c[-1]
        low = max(x - 1, 0)
        c.append(low + int(d[y, low : x + 2].argmin()))
    return np.array(c[::-1])


def elementary(x: Array, rule: Array) -> Array:
    cells = np.unpackbits(x.astype(np.uint8))
    for _ in range(4):
        cells = (int(rule) >> (np.roll(cells, 1) * 4 + cells * 2 + np.roll(cells, -1))) & 1
    return np.packbits(cells.astype(np.uint8))


def automaton(table: Array, text: Array, final: Array) -> tuple[Array, Array]:
    at = np.zeros(text.shape, bool)
    for b, row in enumerate(text):
        q = 0
        for n, c in enumerate(row):
            q = table[q, c]
            at[b, n] = final[q]
    return at, at.sum(1)


def states(given: Given) -> Given:
    return {**given, "next": given["next"] % len(given["final"]), "text": given["text"] % 4}


def brackets(s: Array) -> tuple[Array, Array]:
    d = np.cumsum(np.sign(s), 1)
    return d, (d.min(1, initial=0) >= 0) & (d[:, -1] == 0)


def matrix_chain(d: Array) -> Array:
    def best(dims: tuple[int, ...]) -> int:
        if len(dims) <= 2:
            return 0
        return min(
            best(dims[:k] + dims[k + 1 :]) + dims[k - 1] * dims[k] * dims[k + 1] for k in range(1, len(dims) - 1)
        )

    return np.array(best(tuple(map(int, d))))


N = sized("N", (7,), (33,), (1,))
TABLES = {
    "rising": Foreign(rising, N, within(-9, 9, "a")),
    "unbounded_knapsack": Foreign(unbounded_knapsack, sized("K", (5,), (17,)), within(-1, 12, "w", "v")),
    "coins": Foreign(coins, sized("K", (3,), (5,), (1,)), within(0, 9, "w")),
    "gotoh": Foreign(gotoh, sized("M N", (5, 7), (9, 4), (1, 1)), within(0, 2, "a", "b")),
    "warped": Foreign(warped, sized("M N", (5, 7), (9, 4), (1, 1))),
    "ctc": Foreign(ctc, sized("T C L", (4, 3, 2), (5, 3, 2)), likely),
    "forward_backward": Foreign(forward_backward, sized("S T", (3, 4), (2, 7), (1, 1)), stochastic),
    "cyk": Foreign(cyk, sized("N W R", (5, 3, 8), (7, 4, 12)), grammar),
    "subset_sums": Foreign(subset_sums, sized("N", (5,), (8,)), within(1, 11, "a")),
    "bit_parallel": Foreign(bit_parallel, sized("M N", (5, 9), (11, 20), (1, 1)), within(0, 2, "p", "t")),
    "seam": Foreign(seam, sized("H W", (5, 7), (9, 4), (1, 1))),
    "elementary": Foreign(elementary, sized("N", (5,), (16,), (1,))),
    "automaton": Foreign(automaton, sized("S B N", (5, 3, 9), (7, 17, 20)), states),
    "brackets": Foreign(brackets, sized("B N", (9, 5), (17, 4), (1, 1)), within(-1, 1, "s")),
    "matrix_chain": Foreign(matrix_chain, sized("N", (4,), (6,), (1,)), within(1, 20, "d")),
}
