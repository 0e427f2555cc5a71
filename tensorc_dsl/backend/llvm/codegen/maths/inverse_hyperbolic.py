"""`asinh`, `acosh` and `atanh`: logarithms of 1 and more, computed in f64."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.log import log1p
from tensorc_dsl.ir.dtypes import F64

_LN2 = math.log(2)

_LARGE = 2.0**28
"""From here on the squares of x and of x plus or minus 1 are the same."""


def asinh(x: Lanes) -> Lanes:
    """log(|x| + sqrt(x^2 + 1)) with the sign of x; -0 at -0, infinite at infinities."""
    wide = x.to(F64)
    a = wide.size()
    square = a * a
    near = a + square / ((square + 1.0).root() + 1.0)
    return _logarithm(a, near).signed_as(wide).to(x.dtype)


def acosh(x: Lanes) -> Lanes:
    """log(x + sqrt(x^2 - 1)); NaN below 1."""
    wide = x.to(F64)
    t = wide - 1.0
    near = t + t.times_plus(t, t * 2.0).root()
    return (wide < 1.0).choose(wide.constant(math.nan), _logarithm(wide, near)).to(x.dtype)


def _logarithm(a: Lanes, near: Lanes) -> Lanes:
    """log(1 + near), or log(2a) of a large a."""
    large = a > _LARGE
    return log1p(large.choose(a - 1.0, near)) + large.choose(a.constant(_LN2), a.constant(0.0))


def atanh(x: Lanes) -> Lanes:
    """Half of log((1 + |x|) / (1 - |x|)) with the sign of x; infinite at -1 and 1, NaN beyond, -0 at -0."""
    wide = x.to(F64)
    a = wide.size()
    return (log1p((a + a) / (a.constant(1.0) - a)) * 0.5).signed_as(wide).to(x.dtype)
