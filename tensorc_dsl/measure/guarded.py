"""Arrays in guarded memory, which detect kernels that access memory outside of them.

An array ends where unreadable pages begin (up to the alignment's padding), so an access past its end crashes
the process. Unreadable pages lie below it as well. The bytes between array and pages hold a pattern that is checked.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.ir.strides import dense_strides, elements_spanned

ALIGNMENT = 64
"""Arrays start at multiples of this, as kernels may expect (a cache line, the widest vector)."""

_GUARD_PAGES = 16
_PATTERN = 0xC5
_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2


def _protect(address: int, length: int, protection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(length), protection) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Guarded:
    """One array in its own guarded memory. The memory lives as long as this object or a view of `array` does."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None) -> None:
        """`strides` are in elements; without them the array is dense."""
        strides = dense_strides(shape) if strides is None else strides
        count = elements_spanned(shape, strides)
        size = count * dtype.itemsize
        padded = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        guard = _GUARD_PAGES * mmap.PAGESIZE
        inner = -(-(padded + ALIGNMENT) // mmap.PAGESIZE) * mmap.PAGESIZE
        # Private memory is what a process is limited in.
        memory = mmap.mmap(-1, inner + 2 * guard, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        everything = np.frombuffer(memory, dtype=np.uint8)
        self._pages = everything[guard : guard + inner]
        start = inner - padded
        self._before = self._pages[:start]
        self._after = self._pages[start + size :]
        self._before[:] = _PATTERN
        self._after[:] = _PATTERN
        inside = self._pages[start : start + size]
        self.array: NDArray[Any] = np.ndarray(shape, dtype, inside, 0, tuple(n * dtype.itemsize for n in strides))
        self._elements = inside.reshape(count, dtype.itemsize)
        self._between: NDArray[np.bool_] | None = None
        if count > prod(shape):
            self._between = np.ones(count, bool)
            np.ndarray(shape, bool, self._between, 0, strides)[...] = False
            self._elements[self._between] = _PATTERN
        base = everything.ctypes.data
        _protect(base, guard, _PROT_NONE)
        _protect(base + guard + inner, guard, _PROT_NONE)

    def trespassed(self) -> str | None:
        """Where the kernel wrote beside the array: "before", "after" or "between" its elements; None when it did not."""
        if (self._before != _PATTERN).any():
            return "before"
        if self._between is not None and (self._elements[self._between] != _PATTERN).any():
            return "between"
        return "after" if (self._after != _PATTERN).any() else None

    def freeze(self) -> None:
        """Write-protect the array."""
        self.array.flags.writeable = False
        _protect(self._pages.ctypes.data, len(self._pages), _PROT_READ)


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """A write-protected copy: a kernel that writes to it crashes."""
    guarded = Guarded(values.shape, values.dtype)
    guarded.array[...] = values
    guarded.freeze()
    return guarded.array


def poison(array: NDArray[Any]) -> None:
    """Fill an array with values that no kernel computes: NaN, or a bit pattern for integers."""
    if array.dtype.kind == "f":
        array[...] = np.nan
    else:
        array[...] = np.frombuffer(bytes([0x5A] * array.itemsize), array.dtype)[0]
