"""Checks of a kernel's outputs: arrays in guarded memory, and the comparison with a float64 reference."""

from __future__ import annotations

import ctypes
import mmap
import os
from math import isinf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.memory import ALIGNMENT
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import widen
from tensorc_dsl.ir.dtypes import DType, overflowed, overflows_above
from tensorc_dsl.ir.sizes import dense_strides, elements_spanned

# Compares the outputs of a kernel with a float64 reference.


Array = NDArray[Any]


@frozen
class Verdict:
    """`max_error` is the largest ratio of an error to its tolerance; `fault` is empty if all elements are right."""

    max_error: float
    fault: str = ""


CHUNK = 1 << 16
"""Elements that are compared at a time: their intermediate values fit into a cache, and those of an image do not."""


def compare(
    name: str, got: Array, expected: Array, tolerance: NDArray[np.float64], dtype: DType | None = None
) -> Verdict:
    """Each element of `got` against `expected`, which is wide, within `tolerance` (absolute, per element). `got` is wide or,
    if its `dtype` is given, as a buffer of that stores it.

    NaN and infinities are right where the reference has the same, and nowhere else; but the reference is wider than the
    type of the kernel's result, so beyond the largest number of the `dtype`, as far as the tolerance tells, infinity of
    the right sign is right too. Where the tolerance is infinite, everything is.
    """
    worst, wrong, first = 0.0, 0, 0
    every = [np.ravel(a) for a in (got, expected, tolerance)]
    for start in range(0, every[0].size, CHUNK):
        found, wanted, allowed = (a[start : start + CHUNK] for a in every)
        share = _share(found if dtype is None else widen(found, dtype), wanted, allowed, dtype)
        worst = max(worst, float(share.max()))
        if worst > 1.0 and (count := int(np.count_nonzero(share > 1.0))):
            first = first if wrong else start + int(np.argmax(share > 1.0))
            wrong += count
    if not wrong:
        return Verdict(worst)
    at = tuple(int(i) for i in np.unravel_index(first, got.shape))
    value = got[at] if dtype is None else widen(got[at], dtype)
    place = f"{name}[{', '.join(map(str, at))}]" if at else name
    return Verdict(
        worst,
        f"{place} is {value:.9g}, not {expected[at]:.9g} within {tolerance[at]:.2g}"
        f" ({wrong} of {got.size} elements are wrong)",
    )


def _share(got: Array, expected: Array, tolerance: NDArray[np.float64], dtype: DType | None) -> NDArray[np.float64]:
    """The errors as shares of what is allowed; infinite where one is wrong whatever is allowed."""
    same = got == expected
    if same.all():
        return np.zeros(got.shape)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        share = error / tolerance
    if tolerance.min() > 0 and share.max() <= 1.0:  # so none is NaN, and nothing below changes it
        return share
    share[~(tolerance > 0)] = np.inf
    same |= (np.isnan(got) & np.isnan(expected)) | np.isinf(tolerance)
    if dtype is not None and dtype.is_float:
        lost = np.isinf(got) & (np.sign(got) == np.sign(expected)) if isinf(overflowed(dtype)) else np.isnan(got)
        same |= lost & (np.abs(expected) + tolerance >= overflows_above(dtype))
    return np.where(same, 0.0, np.where(np.isnan(share) | ~np.isfinite(expected), np.inf, share))


def other_bits(name: str, got: Array, expected: Array, dtype: DType, zeros: bool) -> str:
    """The first element of `got` that has other bits than it is to have, as text; empty if none has. Both are as a buffer of
    the type stores them. A NaN is like any other one; so are both zeros, if `zeros`."""
    if got.tobytes() == expected.tobytes():
        return ""
    a, b = (np.ascontiguousarray(x).reshape(-1) for x in (got, expected))
    raw = [x.view(np.uint8).reshape(a.size, -1) for x in (a, b)]
    other = np.any(raw[0] != raw[1], axis=1)
    if dtype.is_float:
        x, y = widen(a, dtype), widen(b, dtype)
        other &= ~(np.isnan(x) & np.isnan(y))
        if zeros:
            other &= (x != 0) | (y != 0)
    if not other.any():
        return ""
    first, count = int(np.argmax(other)), int(np.count_nonzero(other))
    at = ", ".join(str(int(i)) for i in np.unravel_index(first, got.shape))
    texts = ("".join(f"{byte:02x}" for byte in x[first][::-1]) for x in raw)
    return f"{name}[{at}] has the bits {next(texts)}, not {next(texts)} ({count} of {a.size} elements have others)"


# Arrays in guarded memory, which detect kernels that access memory outside of them.
#
# An array ends where unreadable pages begin (up to the alignment's padding), so an access past its end crashes
# the process. Unreadable pages lie below it as well. The bytes between array and pages hold a pattern that is checked.


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


def read_only(values: NDArray[Any]) -> NDArray[Any]:
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
