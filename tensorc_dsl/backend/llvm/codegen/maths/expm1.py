"""`expm1`, and the hyperbolic functions, which are quotients and sums of it."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.exp import EXP, reduced
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pairs import lost, over
from tensorc_dsl.ir.dtypes import F32, F64

# From the first down exp(x) - 1 is -1, from the second up half of exp(x) is infinite.
_LIMITS = {F32: (-18.0, 89.5), F64: (-38.0, 710.5)}


def expm1(x: Lanes) -> Lanes:
    """exp(x) - 1, with all digits near 0; -0 at -0, -1 at -infinity."""
    tiny = 2.0 ** -(x.format.fraction + 2)
    return (x.size() < tiny).choose(x, quarter(x) * 4.0)


def quarter(x: Lanes) -> Lanes:
    """(exp(x) - 1) / 4, which is finite where sinh and cosh are; it loses digits of x near the least normal number.

    With x = n*ln2 + r and h = 2**n / 4 it is (h - 1/4) + h*r + h*(exp(r) - 1 - r), and the first two are added exactly.
    """
    form = x.format
    shifted, r, rest = reduced(x.limited(*_LIMITS[x.dtype]))
    tail = r.polynomial(EXP[x.dtype]).times_plus(r * r, rest)
    h = ((shifted.bits() - (form.rounder_bits - form.bias + 2)) << form.fraction).bits()
    first, second = h - 0.25, h * r
    total = first + second
    return total + h.times_plus(tail, lost(first, second, total))


def sinh(x: Lanes) -> Lanes:
    """The hyperbolic sine: with q = (exp|x| - 1) / 4 twice q + q / (4q + 1); x itself where its cube is below half an ulp."""
    a = x.size()
    q = quarter(a)
    # From some q on the quotient is 1/4.
    moderate = q.limited(0.0, 2.0**60)
    below = moderate.times_plus(4.0, 1.0)
    second = over((moderate, x.constant(0.0)), (below, lost(x.constant(1.0), moderate * 4.0, below)))
    found = ((q + second) * 2.0).signed_as(x)
    return (a < 2.0 ** -(x.format.fraction // 2 + 2)).choose(x, found)


def cosh(x: Lanes) -> Lanes:
    """The hyperbolic cosine: with h = exp|x| / 2 it is h + 1 / (4h)."""
    h = quarter(x.size()).times_plus(2.0, 0.5)
    return h + h.constant(0.25) / h
