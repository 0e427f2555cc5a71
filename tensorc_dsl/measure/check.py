"""Compares the outputs of a kernel with a float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.ir.arrays import widen
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.numbers import overflowed, overflows_above

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
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
