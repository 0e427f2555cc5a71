"""The values of the functions of bits, by NumPy: of integers of a type, which are wide."""

from __future__ import annotations

import numpy as np

from tensorc_dsl.ir.arrays import Array, wide_dtype
from tensorc_dsl.ir.dtypes import DType


def _bits(t: DType, x: Array) -> Array:
    """The bits that the integers have in their type."""
    return np.asarray(x).astype(wide_dtype(t), copy=False).view(np.uint64) & np.uint64(2**t.bits - 1)


def _counts(t: DType, n: Array) -> Array:
    """Counts as wide values of the type."""
    return n.astype(wide_dtype(t))


def popcount(t: DType, x: Array) -> Array:
    """How many bits are set."""
    return _counts(t, np.bitwise_count(_bits(t, x)))


def ctz(t: DType, x: Array) -> Array:
    """How many bits are below the lowest that is set; of 0 all of them."""
    u = _bits(t, x)
    below = (u & (~u + np.uint64(1))) - np.uint64(1)  # of 0 all 64 bits
    return _counts(t, np.minimum(np.bitwise_count(below), t.bits))


def clz(t: DType, x: Array) -> Array:
    """How many bits are above the highest that is set; of 0 all of them."""
    u = _bits(t, x)
    for places in (1, 2, 4, 8, 16, 32):
        u = u | (u >> np.uint64(places))
    return _counts(t, t.bits - np.bitwise_count(u))
