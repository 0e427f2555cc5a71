"""Numbers as sums of two floats, the second of which is below the last place of the first, or nearly so.

T. J. Dekker, *A floating-point technique for extending the available precision* (1971); with an fma a product takes two
instructions (Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., 2018, chapter 4).
"""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes

Pair = tuple[Lanes, Lanes]


def lost(a: Lanes, b: Lanes, total: Lanes) -> Lanes:
    """What the rounded sum of two floats of any sizes lacks (Knuth's two-sum)."""
    part = total - a
    return (a - (total - part)) + (b - part)


def plus(a: Lanes, b: Lanes) -> Pair:
    """The sum of two floats, of which the first is 0 or the larger one."""
    total = a + b
    return total, b - (total - a)


def times(a: Lanes, b: Lanes) -> Pair:
    """The product of two floats."""
    product = a * b
    return product, a.times_plus(b, -product)


def times_pair(a: Pair, b: Pair) -> Pair:
    """The product of two pairs."""
    high, low = times(a[0], b[0])
    return plus(high, a[0].times_plus(b[1], a[1].times_plus(b[0], low)))


def over(a: Pair, b: Pair) -> Lanes:
    """The quotient of two pairs of moderate sizes, rounded once, or nearly so."""
    inverse = a[0].constant(1.0) / b[0]
    found = a[0] * inverse
    rest = (-found).times_plus(b[0], a[0]) + (-found).times_plus(b[1], a[1])
    return rest.times_plus(inverse, found)
