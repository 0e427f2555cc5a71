"""Roots: `cbrt` and `hypot`."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pairs import times
from tensorc_dsl.backend.llvm.codegen.maths.pow import exp2_to_f32, log2_to_f32
from tensorc_dsl.ir.dtypes import F32, F64


def cbrt(x: Lanes) -> Lanes:
    """The cube root, computed in f64: 2 to a third of the logarithm, which has 30 bits, and a step of Newton's method."""
    wide = x.to(F64)
    a = wide.size()
    small = a < 2.0**-900
    scaled = small.choose(a * 2.0**300, a)
    y = exp2_to_f32(log2_to_f32(scaled) * (1.0 / 3.0))
    square, lacks = times(y, y)
    over = square.times_plus(y, -scaled) + lacks * y
    root = y - over / (square * 3.0)
    root = small.choose(root * 2.0**-100, root)
    return ((a > 0.0) & (a < math.inf)).choose(root.signed_as(wide), wide).to(x.dtype)


def hypot(x: Lanes, y: Lanes) -> Lanes:
    """sqrt(x^2 + y^2) in f64, with both multiplied by a power of two where squares would leave it. Infinite where one of the
    two is, even if the other is NaN."""
    a, b = x.size().to(F64), y.size().to(F64)
    if x.dtype == F32:
        return _infinite(a, b).choose(a.constant(math.inf), a.times_plus(a, b * b).root()).to(F32)
    high = (a > b).choose(a, b)
    low = (a > b).choose(b, a)
    one = a.constant(1.0)
    up = (high > 2.0**500).choose(a.constant(2.0**-600), (high < 2.0**-400).choose(a.constant(2.0**600), one))
    back = (high > 2.0**500).choose(a.constant(2.0**600), (high < 2.0**-400).choose(a.constant(2.0**-600), one))
    p, q = high * up, low * up
    return _infinite(a, b).choose(a.constant(math.inf), p.times_plus(p, q * q).root() * back)


def _infinite(a: Lanes, b: Lanes) -> Lanes:
    return a.equals(math.inf) | b.equals(math.inf)
