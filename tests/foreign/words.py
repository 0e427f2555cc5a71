"""References of `words.tsched`."""

from __future__ import annotations

import base64 as codec
import datetime as dt
import hashlib
import math
import zlib
from collections.abc import Callable

import numpy as np

from tests.foreign.references import Array, Foreign, Given, sized, within

M32 = 0xFFFFFFFF


def rotl(x: int, n: int) -> int:
    return (x << n | x >> 32 - n) & M32


def philox(c: Array, key: Array) -> tuple[Array, Array]:
    out = []
    for row in c.tolist():
        x, (k0, k1) = row, map(int, key)
        for _ in range(10):
            a, b = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
            x = [b >> 32 ^ x[1] ^ k0, b & M32, a >> 32 ^ x[3] ^ k1, a & M32]
            k0, k1 = k0 + 0x9E3779B9 & M32, k1 + 0xBB67AE85 & M32
        out.append(x)
    r = np.array(out)
    return r, (r >> 8) / 2.0**24


def fnv(x: Array) -> tuple[Array, Array]:
    h = []
    for row in x.tolist():
        v = 0x811C9DC5
        for b in row:
            v = (v ^ b) * 0x01000193 & M32
        h.append(v)
    r = np.zeros(x.shape, np.int64)
    for m, n in np.ndindex(*x.shape):
        for b in x[m, max(n - 3, 0) : n + 1].tolist():
            r[m, n] = r[m, n] * 31 + b
    return np.array(h), r


def murmur_rows(x: Array, seed: Array) -> Array:
    out = []
    for row in x.tolist():
        h = int(seed)
        for k in row:
            h = rotl(h ^ rotl(k * 0xCC9E2D51 & M32, 15) * 0x1B873593 & M32, 13) * 5 + 0xE6546B64 & M32
        h ^= 4 * len(row)
        h = (h ^ h >> 16) * 0x85EBCA6B & M32
        h = (h ^ h >> 13) * 0xC2B2AE35 & M32
        out.append(h ^ h >> 16)
    return np.array(out)


def pearson(x: Array, t: Array) -> Array:
    h = np.zeros(len(x), int)
    for column in x.T:
        h = t[h ^ column]
    return h


def primes(count: int) -> list[int]:
    found: list[int] = []
    n = 2
    while len(found) < count:
        if all(n % p for p in found):
            found.append(n)
        n += 1
    return found


def root_bits(n: int, k: int) -> int:
    """The first 32 bits of the fraction of the k-th root."""
    x = n << 32 * k
    r = round(n ** (1 / k) * 2**32)
    while r**k > x:
        r -= 1
    while (r + 1) ** k <= x:
        r += 1
    return r & M32


def message(given: Given) -> Given:
    """A message of 51 bytes, padded as the standard says, in each block."""
    rng = np.random.default_rng(7)
    w = []
    for _ in range(len(given["W"])):
        data = rng.integers(0, 256, 51).astype(np.uint8).tobytes()
        padded = data + b"\x80" + bytes(4) + (8 * 51).to_bytes(8, "big")
        w.append(np.frombuffer(padded, ">u4").astype(np.int64))
    return {
        "W": np.array(w),
        "K": np.array([root_bits(p, 3) for p in primes(64)]),
        "I": np.array([root_bits(p, 2) for p in primes(8)]),
    }


def sha256(w: Array, *_: Array) -> Array:
    out = []
    for row in w:
        data = row.astype(">u4").tobytes()[:51]
        out.append(np.frombuffer(hashlib.sha256(data).digest(), ">u4").astype(np.int64))
    return np.array(out)


def xtea(v: Array, key: Array) -> Array:
    out, k = [], key.tolist()
    for a, b in v.tolist():
        s = 0
        for _ in range(32):
            a = a + ((b << 4 ^ b >> 5) + b ^ s + k[s & 3]) & M32
            s = s + 0x9E3779B9 & M32
            b = b + ((a << 4 ^ a >> 5) + a ^ s + k[s >> 11 & 3]) & M32
        out.append([a, b])
    return np.array(out)


def mix_columns(x: Array, m: Array) -> Array:
    def times(a: int, b: int) -> int:
        r = 0
        while b:
            if b & 1:
                r ^= a
            a = a << 1 ^ (0x11B if a & 0x80 else 0)
            b >>= 1
        return r

    y = np.zeros(x.shape, int)
    for n, i, k in np.ndindex(len(x), 4, 4):
        y[n, i] ^= times(int(x[n, k]), int(m[i, k]))
    return y


def aes(given: Given) -> Given:
    return {**given, "M": np.array([[2, 3, 1, 1], [1, 2, 3, 1], [1, 1, 2, 3], [3, 1, 1, 2]])}


def morton(x: Array, y: Array) -> tuple[Array, Array]:
    z = [
        int("".join(b + a for a, b in zip(f"{p:016b}", f"{q:016b}", strict=True)), 2) for p, q in zip(x, y, strict=True)
    ]
    return np.array(z), x


def turned_bits(x: Array) -> tuple[Array, Array]:
    b = np.unpackbits(x.astype(np.uint8)[..., None], axis=2, bitorder="little")
    return np.packbits(b.swapaxes(1, 2), axis=2, bitorder="little")[..., 0], np.packbits(b, axis=2)[..., 0]


def hamming(a: Array) -> tuple[Array, Array]:
    d = np.array([[sum(int(x ^ y).bit_count() for x, y in zip(p, q, strict=True)) for q in a] for p in a])
    return d, np.where(np.eye(len(a)) > 0, M32, d).argmin(1)


def packed_life(x: Array) -> Array:
    h, w = x.shape
    cells = (x[:, :, None] >> np.arange(32) & 1).reshape(h, -1)
    n = sum(np.roll(cells, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - cells
    new = (n == 3) | (cells == 1) & (n == 2)
    return (new.reshape(h, w, 32).astype(np.int64) << np.arange(32)).sum(2)


def words_of(n: int, count: int) -> Array:
    return np.array([n >> 16 * i & 0xFFFF for i in range(count)])


def big_numbers(a: Array, b: Array) -> tuple[Array, Array]:
    n = len(a)
    x, y = (sum(int(v) << 16 * i for i, v in enumerate(z)) for z in (a, b))
    return words_of(x + y, n + 1), words_of(x * y, 2 * n)


def number_theoretic(x: Array) -> tuple[Array, Array]:
    w = np.array([pow(1925, n, 7681) for n in range(8)])
    at = np.outer(np.arange(8), np.arange(8)) % 8
    return x @ w[at] % 7681, np.array([[pow(int(v), 203, 998244353) for v in row] for row in x])


def civil(days: Array) -> tuple[Array, Array]:
    found = [dt.date(1970, 1, 1) + dt.timedelta(int(d)) for d in days]
    return np.array([[d.year, d.month, d.day] for d in found]), np.array([d.isoweekday() % 7 for d in found])


def base64(x: Array, _: Array) -> Array:
    return np.frombuffer(codec.b64encode(x.astype(np.uint8).tobytes()), np.uint8).astype(int)


def alphabet(given: Given) -> Given:
    text = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return {**given, "alphabet": np.frombuffer(text.encode(), np.uint8).astype(int)}


def digits(x: Array) -> tuple[Array, Array]:
    return np.array([int(str(v), 16) for v in x]), np.array([[v // 10**q % 10 for q in range(5)] for v in x])


def integers(a: Array, b: Array) -> tuple[Array, Array]:
    r = []
    for x in a:
        n = abs(int(x)) * 1000
        r.append(math.isqrt(n))
    return np.gcd(a, b), np.array(r)


def wide(*names: str) -> Callable[[Given], Given]:
    """Words of all bits instead of bytes."""

    def made(given: Given) -> Given:
        rng = np.random.default_rng(11)
        return {n: rng.integers(0, 2**32, a.shape) if n in names else a for n, a in given.items()}

    return made


def shorts(given: Given) -> Given:
    rng = np.random.default_rng(12)
    return {n: rng.integers(0, 2**16, a.shape) for n, a in given.items()}


N = sized("N", (7,), (33,), (1,))
WORDS = {
    "philox": Foreign(philox, N, wide("c", "key")),
    "fnv": Foreign(fnv, sized("M N", (3, 7), (17, 9), (1, 1))),
    "adler": Foreign(lambda x: np.array(zlib.adler32(x.astype(np.uint8).tobytes())), sized("N", (9,), (300,), (1,))),
    "pearson": Foreign(pearson, sized("M N", (3, 7), (17, 9), (1, 1))),
    "murmur_rows": Foreign(murmur_rows, sized("M N", (3, 7), (17, 9), (1, 1)), wide("X", "seed")),
    "sha256": Foreign(sha256, sized("B", (2,), (9,)), message),
    "xtea": Foreign(xtea, N, wide("V", "key")),
    "mix_columns": Foreign(mix_columns, N, aes),
    "morton": Foreign(morton, N, shorts),
    "turned_bits": Foreign(turned_bits, sized("B", (3,), (17,), (1,))),
    "hamming": Foreign(hamming, sized("N W", (5, 3), (17, 2), (2, 1)), wide("A")),
    "packed_life": Foreign(packed_life, sized("H W", (5, 3), (9, 1), (3, 17)), wide("X")),
    "bitonic_sort": Foreign(np.sort, sized("", ())),
    "transposition_sort": Foreign(lambda k, v: (np.sort(k), v[np.argsort(k, kind="stable")]), N, within(0, 20, "K")),
    "doubling": Foreign(lambda x: np.cumsum(x) % 65536, N, shorts),
    "big_numbers": Foreign(big_numbers, N, shorts),
    "number_theoretic": Foreign(number_theoretic, sized("B", (3,), (17,)), within(0, 7680, "X")),
    "civil": Foreign(civil, sized("N", (9,), (40,)), lambda g: {"days": g["days"] * 1777}),
    "base64": Foreign(base64, N, alphabet),
    "digits": Foreign(digits, N, shorts),
    "integers": Foreign(integers, N),
}
