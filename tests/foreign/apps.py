"""References of `apps.tsched`."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import ndimage

from tests.foreign.references import Array, Foreign, Given, sized, within


def warp_affine(x: Array, a: Array) -> Array:
    at = np.einsum("rc,chw->rhw", a.reshape(2, 3), np.stack([*np.indices(x.shape), np.ones(x.shape)]))
    return ndimage.map_coordinates(x.astype(float), at, order=1, mode="nearest")


def gentle(given: Given) -> Given:
    return {**given, "a": np.array([0.75, 0.25, -1.0, -0.125, 1.0, 0.5])}


def nl_means(x: Array) -> Array:
    def moved(i: int, j: int) -> Array:
        h, w = x.shape
        return x[np.clip(np.arange(h) + i, 0, h - 1)[:, None], np.clip(np.arange(w) + j, 0, w - 1)]

    total, weights = np.zeros_like(x), np.zeros_like(x)
    for q in range(-2, 3):
        for r in range(-2, 3):
            d = sum((moved(i, j) - moved(i + q, j + r)) ** 2 for i in (-1, 0, 1) for j in (-1, 0, 1))
            w = np.exp(-d)
            total, weights = total + w * moved(q, r), weights + w
    return total / weights


def remapped(x: Array) -> Array:
    g = np.array([x + 0.5 * (x - k / 4) * np.exp(-((x - k / 4) ** 2)) for k in range(5)])
    p = np.pad(g, [(0, 0), (0, 0), (1, 1)], mode="edge")
    d = 0.5 * g + 0.25 * (p[:, :, :-2] + p[:, :, 2:])
    y = np.zeros_like(x)
    for i, j in np.ndindex(*x.shape):
        y[i, j] = np.interp(np.clip(x[i, j], 0, 1) * 4, np.arange(5), d[:, i, j])
    return y


def wrapped(x: Array, bits: int) -> Array:
    """Whole numbers as a signed type of so many bits holds them."""
    half = 1 << bits - 1
    return np.array([(int(v) + half) % (2 * half) - half for v in x.ravel()], np.int64).reshape(x.shape)


def sieve(one: Array) -> Array:
    return np.array([int(n > 1 and all(n % d for d in range(2, n))) for n in range(50)])


def divisions(a: Array, b: Array) -> tuple[Array, ...]:
    safe = np.where(b == 0, 1, b)
    q, r = np.where(b == 0, 0, a // safe), np.where(b == 0, 0, a % safe)
    return q, r, q * b + r


def narrow_divisions(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
    q, r, _ = divisions(a, b)
    s, t, _ = divisions(c, d)
    return wrapped(q, 8), r, s, t


def with_edges(given: Given) -> Given:
    made = {n: x.copy() for n, x in given.items()}
    a, b = made["a"], made["b"]
    a[:3], b[:3] = (-128, -128, 7), (-1, 0, 0)
    b[b == 0] = np.where(np.arange((b == 0).sum()) % 2 == 0, 0, 1)
    return made


def saturating(a: Array, b: Array) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        w = np.nan_to_num(a.astype(float) / b, nan=0.0, posinf=1e9, neginf=-1e9)
    return (
        np.clip(a, -128, 127), np.clip(wrapped(a * b, 32), 0, 65535), np.clip(a * b, -32768, 32767),
        np.clip(np.trunc(w), 0, 255),
    )  # fmt: skip


def compacted(x: Array, keep: Array) -> tuple[Array, Array]:
    y = np.zeros_like(x)
    y[: keep.sum()] = x[keep]
    return y, keep.sum()


def knapsack(v: Array, w: Array) -> Array:
    best = np.zeros(21)
    for value, weight in zip(v, w, strict=True):
        best = np.array([max(best[c], best[c - weight] + value if weight <= c else -np.inf) for c in range(21)])
    return best[20]


def longest_common(a: Array, b: Array) -> Array:
    d = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i in range(len(a)):
        for j in range(len(b)):
            d[i + 1, j + 1] = d[i, j] + 1 if a[i] == b[j] else max(d[i, j + 1], d[i + 1, j])
    return d[-1, -1]


APPS = {
    "warp_affine": Foreign(warp_affine, sized("H W", (5, 7), (9, 17)), gentle),
    "nl_means": Foreign(nl_means, sized("H W", (5, 7), (9, 17))),
    "remapped": Foreign(remapped, sized("H W", (3, 5), (7, 17)), lambda g: {"X": np.abs(g["X"]) * 0.5}),
    "median_of_nine": Foreign(
        lambda x: np.median(sliding_window_view(x, (3, 3)), (2, 3)), sized("H W", (5, 7), (9, 33))
    ),
    "sieve": Foreign(sieve, ({},), within(1, 1, "one")),
    "narrow_divisions": Foreign(narrow_divisions, sized("N", (13,), (100,)), with_edges),
    "saturating": Foreign(saturating, sized("N", (13,), (100,)), lambda g: {n: x**3 for n, x in g.items()}),
    "compacted": Foreign(compacted, sized("N", (7,), (40,))),
    "game_of_best": Foreign(knapsack, sized("N", (5,), (9,)), within(1, 9, "w")),
    "longest_common": Foreign(longest_common, sized("M N", (5, 7), (9, 13)), within(0, 2, "a", "b")),
}
