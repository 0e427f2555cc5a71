"""Allocates aligned arrays for kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.sizes import dense_strides, elements_spanned
from tensorc_dsl.ir.target import CACHE_LINE

ALIGNMENT = CACHE_LINE
"""Where arrays for kernels begin, in bytes: at a cache line, and at a whole one of the widest vectors."""

ALIKE = 4096
"""A load waits for an earlier store whose address is the same in the lowest 12 bits, until all bits were compared ("4-Kbyte
aliasing", Intel 64 and IA-32 Architectures Optimization Reference Manual; Zen does so, too). An output that begins a little
behind an input by these bits is then stored to where the next elements are loaded: a sum of arrays took 1.2 times as long."""

LARGE = 16 * ALIKE
"""From so many bytes on, arrays begin at multiples of `ALIKE`, where all of them are equally far."""

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
    """An uninitialised C-contiguous array whose data are aligned to 64 bytes, those of a large one to 4096.

    Raises OutOfMemory, which says `what` it is.
    """
    size = prod(shape) * dtype.itemsize
    alignment = ALIGNMENT if size < LARGE else ALIKE
    if size > MOST_BYTES:
        raise out_of_memory(what, size)
    try:
        raw = np.empty(size + alignment, np.uint8)
    except MemoryError as e:
        raise out_of_memory(what, size) from e
    start = -raw.ctypes.data % alignment
    return raw[start : start + size].view(dtype).reshape(shape)


def strided_empty(
    shape: tuple[int, ...], strides: Sequence[int], dtype: np.dtype[Any], what: str = "an array"
) -> Array:
    """As `aligned_empty`, with strides in elements, none of them negative."""
    memory = aligned_empty((elements_spanned(shape, strides),), dtype, what)
    return np.ndarray(shape, dtype, memory, 0, tuple(n * dtype.itemsize for n in strides))


def aligned_copy(a: Array) -> Array:
    """An aligned copy with the strides of the array; dense where one is negative, as of a reversed view."""
    strides = [n // a.itemsize for n in a.strides]
    return laid_out(a, dense_strides(a.shape) if a.flags.c_contiguous or min(strides) < 0 else strides)


def laid_out(a: Array, strides: Sequence[int]) -> Array:
    """An aligned copy with these strides in elements."""
    out = strided_empty(a.shape, strides, a.dtype)
    out[...] = a
    return out
