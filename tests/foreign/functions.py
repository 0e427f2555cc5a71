"""References of `functions.tsched`."""

from __future__ import annotations

import zlib

import numpy as np
from scipy import special

from tests.foreign.references import Array, Foreign, Given, sized


def newton_angle(x: Array, y: Array) -> Array:
    z = x[None] + 1j * y[:, None]
    s = np.abs(z) ** 2 + 0.5
    return np.angle((2 * z + np.conj(z) ** 2 / s**2) / 3)


def haversine(a: Array, b: Array) -> Array:
    """By the angle between points of the unit sphere."""

    def point(p: Array) -> Array:
        return np.stack([np.cos(p[:, 0]) * np.cos(p[:, 1]), np.cos(p[:, 0]) * np.sin(p[:, 1]), np.sin(p[:, 0])], axis=1)

    u, v = point(a)[:, None], point(b)[None]
    return 12742 * np.arctan2(np.linalg.norm(u - v, axis=-1), np.linalg.norm(u + v, axis=-1))


def softplus_mish(x: Array) -> tuple[Array, Array]:
    s = np.logaddexp(0, x)
    return s, x * np.tanh(s)


def some_missing(given: Given) -> Given:
    x = given["X"].copy()
    x[:, ::3] = np.nan
    x[::2, 1::4] = np.inf
    return {**given, "X": x}


def nan_mean(x: Array) -> Array:
    kept = np.isfinite(x)
    return np.where(kept, x, 0).sum(1) / np.maximum(kept.sum(1), 1)


def inside(given: Given) -> Given:
    return {"P": np.abs(given["P"]) % 0.98 + 0.01}


def tails(p: Array) -> tuple[Array, Array]:
    t = np.sqrt(-2 * np.log(np.minimum(p, 1 - p)))
    z = (t - np.polyval([0.802853, 2.515517], t) / np.polyval([0.189269, 1.432788, 1.0], t)) * np.where(p < 0.5, -1, 1)
    return z, special.ndtr(-z)


def wide_bits(given: Given) -> Given:
    """Integers with all bits at random instead of small ones."""
    rng = np.random.default_rng(3)
    high = {name: 2**31 if name in ("S", "Z", "K", "A", "B") else 2**15 for name in given}
    return {name: rng.integers(0, high[name] * 2, a.shape) for name, a in given.items()}


def xorshift(s: Array, z: Array) -> Array:
    rows, x = [s], s
    for t in range(1, len(z)):
        x = x ^ (x << 13) & 0xFFFFFFFF
        x = x ^ (x >> 17) ^ z[t]
        rows.append(x)
    return np.stack(rows)


def murmur(k: Array) -> Array:
    def one(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        return h ^ h >> 16

    return np.array([one(int(x)) for x in k])


def signs(a: Array) -> Array:
    """-1 and 1 for the bits of 32-bit numbers."""
    return (1 - 2 * (a[..., None] >> np.arange(32) & 1)).reshape(len(a), -1)


def crc(x: Array) -> Array:
    return np.array([zlib.crc32(bytes(row.tolist())) for row in x])


def all_bytes(given: Given) -> Given:
    return {"X": np.random.default_rng(4).integers(0, 256, given["X"].shape)}


def whole_words(given: Given) -> Given:
    return {"X": np.random.default_rng(5).integers(-(2**62), 2**62, given["X"].shape) & ~0xFF}


def row_bits(x: Array) -> tuple[Array, Array, Array]:
    o, p = np.bitwise_or.reduce(x, axis=1), np.bitwise_xor.reduce(x, axis=1)

    def one(o: int, p: int) -> int:
        low = (o & -o).bit_length() - 1 if o else 64
        return low * 100 + (0 if p < 0 else 64 - p.bit_length())

    return o, p, np.array([one(a, b) for a, b in zip(o.tolist(), p.tolist(), strict=True)])


def bitonic(x: Array) -> Array:
    pairs = x.reshape(4, 2, 4)
    return np.stack([pairs.min(1), pairs.max(1)], axis=1).reshape(-1)


FUNCTIONS = {
    "newton_angle": Foreign(newton_angle, sized("W H", (5, 7), (33, 16))),
    "haversine": Foreign(haversine, sized("M N", (5, 7), (16, 33))),
    "softplus_mish": Foreign(softplus_mish, sized("M N", (5, 7), (1, 32))),
    "entropy": Foreign(lambda p: -(p * np.log2(np.abs(p) + 1e-300)).sum(1, where=p > 0), sized("M N", (5, 7))),
    "nan_mean": Foreign(nan_mean, sized("M N", (5, 7), (3, 32)), some_missing),
    "tails": Foreign(tails, sized("N", (7,), (33,)), inside),
    "xorshift": Foreign(xorshift, sized("N T", (7, 5), (16, 9)), wide_bits),
    "murmur": Foreign(murmur, sized("N", (7,), (65,)), wide_bits),
    "binary_matmul": Foreign(lambda a, b: signs(a) @ signs(b).T, sized("M K N", (5, 3, 7), (4, 8, 33)), wide_bits),
    "gray": Foreign(lambda x: (x ^ x >> 1, x), sized("N", (7,), (65,)), wide_bits),
    "crc": Foreign(crc, sized("M N", (5, 7), (16, 3)), all_bytes),
    "row_bits": Foreign(row_bits, sized("M N", (5, 7), (3, 16)), whole_words),
    "bitonic": Foreign(bitonic, ({},)),
}
