"""Allocates aligned arrays for kernels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tensorc_dsl.diagnostic import TschedError, problem
from tensorc_dsl.ir.arrays import Array

ALIGNMENT = 64
"""The size in bytes of a cache line, and of the widest vector."""

MOST_BYTES = 2**60
"""More than any machine has for one kernel. A size of memory beyond it is never computed further, so none leaves 64 bits."""


@problem(
    "E0933",
    "there is no memory for {what}: {size} bytes",
    help="pass smaller arrays, or take a schedule that keeps less at once, as by `compute_at` or `compute_inline`",
)
def NO_MEMORY(*, what: str, size: str) -> None: ...


class OutOfMemory(TschedError, MemoryError):
    """Memory that a kernel needs is not there (E0933)."""


def out_of_memory(what: str, size: int) -> OutOfMemory:
    """The error for so many bytes."""
    return OutOfMemory(
        NO_MEMORY(None, what=what, size=f"more than {MOST_BYTES:,}" if size > MOST_BYTES else f"{size:,}")
    )


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any], what: str = "an array") -> Array:
    """An uninitialised C-contiguous array whose data are aligned to 64 bytes. Raises OutOfMemory, which says `what` it is."""
    size = prod(shape) * dtype.itemsize
    if size > MOST_BYTES:
        raise out_of_memory(what, size)
    try:
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except MemoryError as e:
        raise out_of_memory(what, size) from e
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def aligned_copy(a: Array) -> Array:
    """A C-contiguous aligned copy."""
    out = aligned_empty(a.shape, a.dtype)
    out[...] = a
    return out
