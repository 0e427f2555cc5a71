"""`erf` of f32."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.exp import exp_of_moderate
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes

# erf(x) / x - 1 in x^2 for 0 <= x <= 1
_NEAR = (
    7.920303323771805e-05, -0.0008030750323086977, 0.005190733354538679, -0.02685512602329254, 0.11283618211746216,
    -0.3761262893676758, 0.12837916612625122,
)  # fmt: skip

# log(erfc(x)) for 1 <= x <= 4; an error of it counts erfc(x) times in the result
_FAR = (
    0.0001855772570706904, -0.0029396265745162964, 0.021805359050631523, -0.10303740203380585, -0.6382256746292114,
    -1.1270400285720825, -0.00035372094134800136,
)  # fmt: skip

_BORDER = 1.0
_ONE_FROM_HERE = 4.0
"""A value above 3.92, from where on erf is within half an ulp of 1."""


def erf(x: Lanes) -> Lanes:
    """The error function, never outside -1 … 1: a polynomial near 0, else 1 - exp(log(erfc|x|)).

    NaN does not compare as beyond the border, so it passes through the polynomial.
    """
    a = x.size()
    near = (a * a).polynomial(_NEAR).times_plus(a, a)
    far = x.constant(1.0) - exp_of_moderate(a.limited(_BORDER, _ONE_FROM_HERE).polynomial(_FAR))
    return (a >= _BORDER).choose(far, near).signed_as(x)
