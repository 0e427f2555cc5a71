"""What a kernel may make of numbers that leave its types, for the bounds of `tolerance`.

The reference computes in float64. In a kernel a number beyond the largest of its type is an infinity, unless it shares a
rounding with the next operation, and one below the least normal number may be 0. What is computed from it may be anything:
in f32 `exp(x) / exp(x)` is NaN for x = 100, and `log(exp(x))` -inf for x = -120. A bound of NaN means that the kernel's value
may be any, NaN and infinities included; one of infinity, that it is some number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.numbers import largest_finite, smallest_normal

HALF = 0.5
"""The share of the largest number from which on values are looked at, so that errors are below the rest."""
SAME = 1 - 1e-9
"""Terms whose sum has this share of the sum of their sizes have one sign, up to the roundings of the reference."""

Operand = tuple[Array, Array, DType]
"""Values, a bound on the error of each, and their type."""


@dataclass(slots=True)
class Overflows:
    """The bounds of a program's values. In most programs no value overflows, and then operands are not examined."""

    seen: bool = False
    """Whether some value so far may be beyond its type, or below its normal numbers."""

    def rounding(self, value: Array, t: DType, share: float) -> Array:
        """The error of rounding results to a type: a share of them, and all of one below the least normal number. Infinities
        and NaN are not rounded.
        """
        size = np.abs(value)
        if not size.max(initial=0.0) <= HALF * largest_finite(t):
            self._see(size, t)
            size = np.where(np.isfinite(size), size, 0.0)
        below = size < smallest_normal(t)
        self.seen = self.seen or bool((below & (size > 0)).any())
        return np.where(below, size, size * share)

    def carried(self, f: Callable[..., Array], value: Array, error: Array, t: DType, *operands: Operand) -> Array:
        """The error of a result `f(*operands)`, with what a kernel may have in place of operands that leave their types."""
        if not self.seen:
            return error
        for _, dx, _ in operands:
            if np.isnan(dx).any():
                error = np.where(np.isnan(dx), np.nan, error)
        forms = [_forms(x, dx, s) for x, dx, s in operands]
        for alternative in list(product(*forms))[1:]:
            error = error + _change(f(*alternative), value, t)
        return error

    def factor(self, value: Array, error: Array, t: DType) -> Array:
        """The error of a factor of a sum of products: it may be anything if it is beyond its type."""
        beyond = _beyond(value, error, t) if self.seen else None
        return error if beyond is None or not beyond.any() else np.where(beyond, np.nan, error)

    def span(self, value: Array, error: Array, t: DType) -> tuple[Array, Array]:
        """The least and the greatest number that a kernel may have for each value."""
        low, high = value - error, value + error
        if self.seen:
            lost, beyond = np.isnan(error), _beyond(value, error, t)
            low = np.where(lost | (beyond & (value < 0)), -np.inf, low)
            high = np.where(lost | (beyond & (value > 0)), np.inf, high)
        return low, high

    def summed(self, value: Array, sizes: Array, t: DType) -> Array | float:
        """What is added to the bound of a sum, from the sums of the sizes of its terms: NaN where terms of both signs may
        overflow on the way.
        """
        if not self._see(sizes, t):
            return 0.0
        return np.where((sizes > largest_finite(t)) & ~(np.abs(value) >= SAME * sizes), np.nan, 0.0)

    def multiplied(self, value: Array, above: Array, below: Array, t: DType) -> Array | float:
        """What is added to the bound of a product, from the products of its terms above 1 and below 1 in size."""
        size = np.abs(value)
        lost = np.where(below < smallest_normal(t), size, 0.0)
        if not self._see(above, t):
            return lost
        return np.where((above > largest_finite(t)) & (size <= largest_finite(t)), np.nan, lost)

    def _see(self, sizes: Array, t: DType) -> bool:
        """Whether some of the sizes is near the largest number of the type or beyond it."""
        found = t.is_float and bool((np.where(np.isinf(sizes), 0.0, sizes) > HALF * largest_finite(t)).any())
        self.seen |= found
        return found


def _beyond(x: Array, dx: Array, t: DType) -> Array:
    """Where a kernel may have an infinity for a number of the reference."""
    return np.isfinite(x) & np.isfinite(dx) & (np.abs(x) + dx > largest_finite(t))


def _forms(x: Array, dx: Array, t: DType) -> tuple[Array, ...]:
    """The numbers of the reference, and if some leave the type, those that a kernel may have in place of them."""
    beyond, below = _beyond(x, dx, t), (x != 0) & (np.abs(x) < smallest_normal(t))
    if not beyond.any() and not below.any():
        return (x,)
    return x, np.where(beyond, np.copysign(np.inf, x), np.where(below, 0.0, x))


def _change(made: Array, value: Array, t: DType) -> Array:
    """How far a result is from the reference's; NaN if it is no number or infinite. Results beyond the type are the same."""
    largest = largest_finite(t)
    same = (made == value) | (np.isnan(made) & np.isnan(value))
    same |= (np.sign(made) == np.sign(value)) & (np.minimum(np.abs(made), np.abs(value)) > largest)
    change = np.where(same, 0.0, np.abs(made - value))
    return np.where(np.isfinite(change), change, np.nan)
