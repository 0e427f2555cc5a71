"""Sums of products of arrays that broadcast, by BLAS if possible."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tensorc_dsl.ir.arrays import Array

_EXACT = 2**53
"""The largest integer up to which all integers are exact in float64."""


def contract(factors: Sequence[Array], reduce: Sequence[int], size: Sequence[int]) -> Array:
    """The product of at most two arrays, summed over the axes `reduce`, which keep length 1.

    `size` has the length of each axis. If all factors have length 1 on a reduced axis, its terms are equal, and their
    number counts.
    """
    repeats = prod(size[a] for a in reduce if all(f.shape[a] == 1 for f in factors))
    done: list[Array] = []
    for k, f in enumerate(factors):
        # Axes that only this factor depends on are summed before the product.
        own = tuple(
            a for a in reduce if f.shape[a] > 1 and all(g.shape[a] == 1 for g in (*factors[:k], *factors[k + 1 :]))
        )
        done.append(f.sum(axis=own, keepdims=True) if own else f)
    out = done[0] if len(done) == 1 else _product(done[0], done[1], reduce)
    return out * out.dtype.type(repeats) if repeats != 1 else out


def _product(a: Array, b: Array, reduce: Sequence[int]) -> Array:
    axes = range(a.ndim)
    both = [x for x in axes if a.shape[x] > 1 and b.shape[x] > 1]
    shared = [x for x in both if x in reduce]
    if not shared:
        return a * b
    batch = [x for x in both if x not in reduce]
    rows = [x for x in axes if a.shape[x] > 1 and x not in both]
    columns = [x for x in axes if b.shape[x] > 1 and x not in both]
    rest_a = [x for x in axes if a.shape[x] == 1]
    rest_b = [x for x in axes if b.shape[x] == 1]
    lengths = tuple(a.shape[x] for x in batch)
    k = prod(a.shape[x] for x in shared)
    left = a.transpose(*batch, *rows, *shared, *rest_a).reshape(*lengths, -1, k)
    right = b.transpose(*batch, *shared, *columns, *rest_b).reshape(*lengths, k, -1)
    out = _matmul(left, right, k)
    order = [*batch, *rows, *columns]
    shape = [*lengths, *(a.shape[x] for x in rows), *(b.shape[x] for x in columns)]
    rest = [x for x in axes if x not in order]
    full = out.reshape(*shape, *(1 for _ in rest))
    return full.transpose(*np.argsort([*order, *rest]).tolist())


def _matmul(a: Array, b: Array, k: int) -> Array:
    if a.dtype.kind == "f":
        return np.matmul(a, b)
    if _largest(a) * _largest(b) * k < _EXACT:
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return np.matmul(a, b)


def _largest(a: Array) -> int:
    """The largest magnitude; `np.abs` of the least i64 is negative."""
    return max(int(a.max(initial=0)), -int(a.min(initial=0)))
