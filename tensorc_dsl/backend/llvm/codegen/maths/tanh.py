"""`tanh` of f32."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.exp import exp_of_moderate
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes

# (tanh(x) - x) / x^3 in x^2 for 0 <= x <= 0.625
_TANH = (-0.005714063532650471, 0.020648062229156494, -0.053742773830890656, 0.1333148330450058, -0.3333328366279602)

_BORDER = 0.625
_ONE_FROM_HERE = 10.0
"""A value above 9.02, from where on tanh is within half an ulp of 1."""


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent, never outside -1 … 1: a polynomial near 0, else 1 - 2 / (exp(2|x|) + 1).

    NaN does not compare as beyond the border, so it passes through the polynomial.
    """
    a = x.size()
    square = a * a
    near = square.polynomial(_TANH).times_plus(square * a, a)
    e = exp_of_moderate(a.limited(0.0, _ONE_FROM_HERE) * 2.0)
    far = x.constant(1.0) - x.constant(2.0) / (e + 1.0)
    return (a >= _BORDER).choose(far, near).signed_as(x)
