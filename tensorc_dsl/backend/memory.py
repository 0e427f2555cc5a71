"""Allocates aligned arrays for kernels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tensorc_dsl.ir.arrays import Array

ALIGNMENT = 64
"""The size in bytes of a cache line, and of the widest vector."""


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised C-contiguous array whose data are aligned to 64 bytes. Raises MemoryError as NumPy does."""
    size = prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def aligned_copy(a: Array) -> Array:
    """A C-contiguous aligned copy."""
    out = aligned_empty(a.shape, a.dtype)
    out[...] = a
    return out
