"""References of `bits.tsched`: Python's integers modulo 2^64, after the C programs of their authors."""

from __future__ import annotations

import numpy as np

from tests.foreign.references import Array, Foreign, Given, sized

MASK = 2**64 - 1


def words(rows: list[list[int]]) -> Array:
    return np.array(rows, np.uint64)


def mixed(given: Given) -> Given:
    """All bits of numbers of 64 bits: those of the inputs are small."""
    rng = np.random.default_rng(5)
    return {n: rng.integers(0, MASK, a.shape, np.uint64, endpoint=True) for n, a in given.items()}


def fnv_64(x: Array) -> Array:
    out: list[int] = []
    for row in x.tolist():
        h = 0xCBF29CE484222325
        for byte in row:
            h = (h ^ byte) * 0x100000001B3 & MASK
        out.append(h)
    return np.array(out, np.uint64)


def _finalized(x: int, places: tuple[int, int, int], factors: tuple[int, int]) -> int:
    """Vigna's and Appleby's finalizers: shifts and products by turns."""
    x = (x ^ x >> places[0]) * factors[0] & MASK
    x = (x ^ x >> places[1]) * factors[1] & MASK
    return x ^ x >> places[2]


def murmur_64(k: Array) -> Array:
    return np.array(
        [_finalized(x, (33, 33, 33), (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)) for x in k.tolist()], np.uint64
    )


def splitmix(s: Array) -> tuple[Array, Array]:
    factors = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    rows = [
        [_finalized(x + n * 0x9E3779B97F4A7C15 & MASK, (30, 27, 31), factors) for n in (1, 2, 3)] for x in s.tolist()
    ]
    return words(rows), np.array([[(x >> 11) / 2**53 for x in row] for row in rows])


def _rotated(x: int, places: int) -> int:
    return (x << places | x >> 64 - places) & MASK


def xoshiro(s: Array) -> Array:
    out: list[list[int]] = []
    for state in s.tolist():
        a, b, c, d = state
        own: list[int] = []
        for _ in range(4):
            own.append(_rotated(b * 5 & MASK, 7) * 9 & MASK)
            t = b << 17 & MASK
            c ^= a
            d ^= b
            b ^= c
            a ^= d
            c ^= t
            d = _rotated(d, 45)
        out.append(own)
    return words(out).T


def wide_products(a: Array, b: Array) -> tuple[Array, Array, Array]:
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    rests = [x % y if (y := (n + 1) & MASK) else 0 for x, n in pairs]
    return (
        np.array([x // y if y else 0 for x, y in pairs], np.uint64),
        np.array(rests, np.uint64),
        np.array([x * y >> 64 for x, y in pairs], np.uint64),
    )


BITS = {
    "fnv_64": Foreign(fnv_64, sized("M N", (5, 7), (33, 12), (1, 1))),
    "murmur_64": Foreign(murmur_64, sized("N", (37,), (1,), (64,)), mixed),
    "splitmix": Foreign(splitmix, sized("N", (13,), (1,), (40,)), mixed),
    "xoshiro": Foreign(xoshiro, sized("N", (7,), (1,), (33,)), mixed),
    "wide_products": Foreign(wide_products, sized("N", (29,), (1,), (64,)), mixed),
}
