"""`log` of f32."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.exp import LN2
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.ir.dtypes import F32

# (log(1 + f) - f + f^2/2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG = (
    -0.07636362314224243, 0.12762142717838287, -0.13159598410129547, 0.14201585948467255, -0.1662341058254242,
    0.2000124156475067, -0.2500081956386566, 0.3333333134651184,
)  # fmt: skip

_SMALLEST_NORMAL = 2.0**-126
_ONE, _ROOT_HALF = 0x3F800000, 0x3F3504F3
"""The bits of 1 and of the float32 next to sqrt(1/2)."""


def log(x: Lanes) -> Lanes:
    """The natural logarithm: -infinity at both zeros, NaN below, infinity at infinity, +0 at 1.

    x = 2**e * m with m between the roots of 1/2 and 2; log x = e*ln2 + log1p(m - 1) (Cody and Waite). A subnormal number is
    first multiplied by 2**23.
    """
    tiny = x < _SMALLEST_NORMAL
    scaled = tiny.choose(x * 2.0**23, x)
    shifted = scaled.bits() + (_ONE - _ROOT_HALF)
    e = (shifted >> 23).to(F32) - tiny.choose(x.constant(127.0 + 23.0), x.constant(127.0))
    f = ((shifted & 0x007FFFFF) + _ROOT_HALF).bits() - 1.0
    square = f * f
    tail = f.polynomial(_LOG).times_plus(square * f, e * LN2[1])
    y = e.times_plus(LN2[0], square.times_plus(-0.5, tail) + f)
    y = (x < math.inf).choose(y, x)
    return (x > 0.0).choose(y, x.equals(0.0).choose(x.constant(-math.inf), x.constant(math.nan)))
