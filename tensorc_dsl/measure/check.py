"""Compares the outputs of a kernel with a float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`max_error` is the largest ratio of an error to its tolerance; `fault` is empty if all elements are right."""

    max_error: float
    fault: str = ""


def compare(
    name: str, got: Array, expected: Array, tolerance: NDArray[np.float64], largest: float = float("inf")
) -> Verdict:
    """Each element of `got` against `expected`, both wide, within `tolerance` (absolute, per element).

    NaN and infinities are right where the reference has the same, and nowhere else; but the reference is wider than the
    type of the kernel's result, so beyond the `largest` number of that type, as far as the tolerance tells, infinity of
    the right sign is right too. Where the tolerance is infinite, everything is.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        share = np.divide(error, tolerance, out=np.full(error.shape, np.inf), where=tolerance > 0)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected)) | np.isinf(tolerance)
    if np.isfinite(largest):
        same |= np.isinf(got) & (np.sign(got) == np.sign(expected)) & (np.abs(expected) + tolerance > largest)
    share = np.where(same, 0.0, np.where(np.isnan(share) | ~np.isfinite(expected), np.inf, share))
    worst = float(share.max(initial=0.0))
    if worst <= 1.0:
        return Verdict(worst)
    wrong = np.argwhere(share > 1.0)
    first = tuple(int(i) for i in wrong[0])
    place = f"{name}[{', '.join(map(str, first))}]" if first else name
    return Verdict(
        worst,
        f"{place} is {got[first]:.9g}, not {expected[first]:.9g} within {tolerance[first]:.2g}"
        f" ({len(wrong)} of {share.size} elements are wrong)",
    )
