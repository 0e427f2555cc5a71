"""References of `bits.tsched`: Python's integers modulo 2^64, and what NumPy has for floats and their parts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.foreign.references import Array, Foreign, Given, positive, sized, within

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


def fast_rsqrt(x: Array) -> Array:
    """In f64 from the guess on, which is made of the bits of f32."""
    g = (np.uint32(0x5F3759DF) - (x.astype(np.float32).view(np.uint32) >> np.uint32(1))).view(np.float32).astype(float)
    for _ in range(2):
        g = g * (1.5 - 0.5 * x * g * g)
    return g


def parts_of(x: Array) -> tuple[Array, Array, Array]:
    m, e = np.frexp(np.abs(x))
    return e - 1, 2 * m, np.signbit(x)


def scaled(x: Array, k: Array) -> Array:
    return np.ldexp(x, np.clip(k, -126, 127))


def _key(x: Array, unsigned: type[np.unsignedinteger[Any]]) -> Array:
    """From the order of magnitudes, without bits."""
    bits = np.abs(x).view(unsigned).astype(object)
    turn = 2 ** (8 * x.itemsize - 1)
    return np.array([turn - 1 - b if s else turn + b for b, s in zip(bits, np.signbit(x), strict=True)], unsigned)


def radix_keys(x: Array, z: Array, h: Array) -> tuple[Array, ...]:
    keys = _key(x.astype(np.float32), np.uint32), _key(z, np.uint64), _key(h.astype(np.float16), np.uint16)
    for values, k in zip((x, z, h), keys, strict=True):
        assert (np.diff(values[np.argsort(k)]) >= 0).all()  # what they are for
    return keys


def ranks(x: Array) -> Array:
    out = np.empty(len(x), np.int64)
    out[np.argsort(x, kind="stable")] = np.arange(len(x))
    return out


def float_hash(x: Array) -> Array:
    out: list[int] = []
    for row in (x + 0.0).astype(np.float32).view(np.uint32).tolist():
        h = 0x811C9DC5
        for bits in row:
            h = (h ^ bits) * 0x01000193 % 2**32
        out.append(h)
    return np.array(out)


def uniform_floats(k: Array, x: Array) -> tuple[Array, Array]:
    m, e = np.frexp(x)
    return np.floor(k / 512) / 2**23, np.where(x == 0, x, np.ldexp(np.trunc(m * 256), e - 8))


def mx_quantized(x: Array) -> tuple[Array, Array]:
    exponent = np.frexp(np.abs(x).max(1))[1] - 1  # of the largest, as a power of 2
    scale = np.clip(exponent + 127 - 8, 1, 254)
    q = np.clip(x / np.ldexp(1.0, scale - 127)[:, None], -448, 448).astype(np.float32)
    return q.astype(ml_dtypes.float8_e4m3fn).astype(float), scale


def mx_product(q: Array, s: Array, p: Array, t: Array) -> Array:
    return q @ p.T * np.ldexp(1.0, s - 127)[:, None] * np.ldexp(1.0, t - 127)


def near_one(given: Given) -> Given:
    """Scales whose products with sums are numbers of f32."""
    return {n: a % 16 + 120 if n in "ST" else np.clip(a, -8, 8) for n, a in given.items()}


BITS = {
    "fnv_64": Foreign(fnv_64, sized("M N", (5, 7), (33, 12), (1, 1))),
    "murmur_64": Foreign(murmur_64, sized("N", (37,), (1,), (64,)), mixed),
    "splitmix": Foreign(splitmix, sized("N", (13,), (1,), (40,)), mixed),
    "xoshiro": Foreign(xoshiro, sized("N", (7,), (1,), (33,)), mixed),
    "wide_products": Foreign(wide_products, sized("N", (29,), (1,), (64,)), mixed),
    "fast_rsqrt": Foreign(fast_rsqrt, sized("N", (37,), (1,), (64,)), positive("X")),
    "parts_of": Foreign(parts_of, sized("N", (37,), (1,), (64,))),
    "scaled": Foreign(scaled, sized("N", (37,), (1,), (64,)), within(-90, 90, "K")),
    "radix_keys": Foreign(radix_keys, sized("N", (37,), (1,), (64,))),
    "ranks": Foreign(ranks, sized("N", (37,), (1,), (64,))),
    "float_hash": Foreign(float_hash, sized("M N", (5, 7), (33, 12), (1, 1))),
    "uniform_floats": Foreign(uniform_floats, sized("N", (37,), (1,), (64,))),
    "mx_quantized": Foreign(mx_quantized, sized("M N", (5, 32), (3, 7), (1, 64))),
    "mx_product": Foreign(mx_product, sized("M N K", (5, 7, 32), (1, 3, 5), (9, 16, 64)), near_one),
}
