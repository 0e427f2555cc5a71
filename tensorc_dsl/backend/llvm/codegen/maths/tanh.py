"""`tanh`."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.exp import exp_of_moderate
from tensorc_dsl.backend.llvm.codegen.maths.expm1 import quarter
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pairs import lost, over
from tensorc_dsl.ir.dtypes import F32, F64

# (tanh(x) - x) / x^3 in x^2 for 0 <= x <= 0.625, for f32
_TANH = (-0.005714063532650471, 0.020648062229156494, -0.053742773830890656, 0.1333148330450058, -0.3333328366279602)

_BORDER = 0.625
_ONE_FROM_HERE = {F32: 10.0, F64: 20.0}
"""Values above 9.02 and 19.1, from where on tanh is within half an ulp of 1."""


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent, never outside -1 … 1."""
    return (_of_single if x.dtype == F32 else _of_double)(x)


def _of_double(x: Lanes) -> Lanes:
    """With q = (exp(2|x|) - 1) / 4 it is q / (q + 1/2); x itself where its cube is below half an ulp."""
    a = x.size()
    q, half = quarter(a.limited(0.0, _ONE_FROM_HERE[F64]) * 2.0), x.constant(0.5)
    below = q + half
    found = over((q, x.constant(0.0)), (below, lost(half, q, below)))
    return (a < 2.0**-28).choose(x, found.signed_as(x))


def _of_single(x: Lanes) -> Lanes:
    """A polynomial near 0, else 1 - 2 / (exp(2|x|) + 1), which is faster than the other quotient, and nearer.

    NaN does not compare as beyond the border, so it passes through the polynomial.
    """
    a = x.size()
    square = a * a
    near = square.polynomial(_TANH).times_plus(square * a, a)
    e = exp_of_moderate(a.limited(0.0, _ONE_FROM_HERE[F32]) * 2.0)
    far = x.constant(1.0) - x.constant(2.0) / (e + 1.0)
    return (a >= _BORDER).choose(far, near).signed_as(x)
