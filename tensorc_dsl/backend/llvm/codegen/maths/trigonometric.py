"""`sin`, `cos` and `tan`: the angle is reduced in float64; of f32 the polynomials are in f32, but for the tangent."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.maths import angles64
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pairs import Pair, over, plus
from tensorc_dsl.backend.llvm.codegen.scalars import any_lane
from tensorc_dsl.ir.dtypes import F32, F64, I32, DType

# (sin(r) - r) / r^3 and (cos(r) - 1 + r^2/2) / r^4 in r^2 for |r| <= pi/4, or a little above, by the type of the angle
_SIN = {
    F32: (-0.00019518405315466225, 0.008332190103828907, -0.16666655242443085),
    F64: (
        1.5890307470808216e-10, -2.5050647777901586e-08, 2.7557312999609617e-06, -0.00019841269827855715,
        0.008333333333320042, -0.16666666666666624,
    ),
}  # fmt: skip
_COS = {
    F32: (2.4430670237052254e-05, -0.00138873013202101, 0.04166664555668831),
    F64: (
        -1.135520839840806e-11, 2.0875638887466315e-09, -2.7557313743431055e-07, 2.4801587287423603e-05,
        -0.0013888888888870922, 0.04166666666666658,
    ),
}  # fmt: skip

# pi/2 as two float64.
_HALF_PI = 1.5707963267948966, 6.123233995736766e-17

_ROUNDER = 1.5 * 2.0**52

_LARGE = 2.0**40
"""The size from which on an angle takes the long reduction. It is a multiple of 2**17."""

# 1/(2 pi) without its first 17 bits, in pieces of 29 bits: their products with the 24 bits of a float32 are exact in float64.
_PER_TURN_BITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561 >> 2
_PIECES = tuple(math.ldexp((_PER_TURN_BITS >> (256 - k)) & (2**29 - 1), -k) for k in range(17 + 29, 17 + 7 * 29, 29))


def sin(x: Lanes) -> Lanes:
    """The sine of an angle of any size; -0 at -0, NaN at the infinities."""
    r, quadrant = _reduced(x)
    return x.equals(0.0).choose(x, _wave(_of(r, x.dtype), quadrant))


def cos(x: Lanes) -> Lanes:
    """The cosine of an angle of any size; NaN at the infinities."""
    r, quadrant = _reduced(x)
    return _wave(_of(r, x.dtype), quadrant + 1)


def tan(x: Lanes) -> Lanes:
    """The tangent of an angle of any size; -0 at -0, NaN at the infinities. It is a quotient of float64."""
    r, quadrant = _reduced(x)
    (sine, sine_rest), (cosine, cosine_rest) = _both(r, x.dtype)
    even = (quadrant & 1).equals(0)
    above = even.choose(sine, -cosine), even.choose(sine_rest, -cosine_rest)
    below = even.choose(cosine, sine), even.choose(cosine_rest, sine_rest)
    return x.equals(0.0).choose(x, over(above, below).to(x.dtype))


def _of(r: Pair, t: DType) -> Pair:
    return r[0].to(t), r[1].to(t)


def _wave(r: Pair, quadrant: Lanes) -> Lanes:
    """sin(r + quadrant * pi/2)."""
    (sine, _), (cosine, _) = _both(r, r[0].dtype)
    value = (quadrant & 1).equals(0).choose(sine, cosine)
    return (value.bits() ^ ((quadrant & 2) << (value.dtype.bits - 2))).bits()


def _both(r: Pair, t: DType) -> tuple[Pair, Pair]:
    """sin(r) and cos(r) with the accuracy of a type; for f32 the second parts count for nothing."""
    high, low = r
    square = high * high
    if t == F32:
        sine = (square.polynomial(_SIN[t]) * square).times_plus(high, high)
        return (sine, low), (square.polynomial((*_COS[t], -0.5, 1.0)), low)
    half = square * 0.5
    # sin(r + d) = sin r + d cos r and cos(r + d) = cos r - d sin r, with the first terms of their series.
    more = (square.polynomial(_SIN[t]) * square).times_plus(high, (-low).times_plus(half, low))
    most = high.constant(1.0) - half
    rest = (square * square).times_plus(square.polynomial(_COS[t]), -(high * low))
    return plus(high, more), plus(most, ((high.constant(1.0) - most) - half) + rest)


def _reduced(x: Lanes) -> tuple[Pair, Lanes]:
    """x - n*pi/2 as two floats of f64, at most pi/4 in magnitude or a little above, and n modulo 4 in the bits of the type.

    The code for large angles runs for all lanes if one needs it; its results for the others are discarded, so that a result
    does not depend on its neighbours.
    """
    short, long = (angles64.reduced, angles64.reduced_large) if x.dtype == F64 else (_reduced_short, _reduced_large)
    (high, low), quadrant = short(x)
    large = x.size() >= _LARGE
    f = x.f
    before, some, after = f.block, f.label("large"), f.label("after")
    f.branch_if(any_lane(f, large.value), some, after)
    f.start_block(some)
    with f.region():
        (long_high, long_low), long_quadrant = long(x)
        pairs = ((long_high, high), (long_low, low), (long_quadrant, quadrant))
        chosen = [large.choose(a, b) for a, b in pairs]
    f.branch(after)
    f.start_block(after)
    high, low, quadrant = (_phi(f, before, a, some, b) for a, b in zip((high, low, quadrant), chosen, strict=True))
    return (high, low), quadrant


def _phi(f: Function, left: str, a: Lanes, right: str, b: Lanes) -> Lanes:
    v = a.value
    return Lanes(f, f.value(v.dtype, f"phi {v.type} [ {v.ref}, %{left} ], [ {b.value.ref}, %{right} ]", v.lanes))


def _reduced_short(x: Lanes) -> tuple[Pair, Lanes]:
    """Of an f32 below `_LARGE`: n*pi/2 is subtracted in two steps (Cody and Waite). n has at most 40 bits, and the error is
    about 2**-66; no float32 but 0 is nearer than 2**-30 to a multiple of pi/2."""
    angle = x.to(F64)
    shifted = angle.times_plus(2 / math.pi, _ROUNDER)
    n = shifted - _ROUNDER
    r = n.times_plus(-_HALF_PI[1], n.times_plus(-_HALF_PI[0], angle))
    return (r, r.constant(0.0)), shifted.bits().to(I32)


def _reduced_large(x: Lanes) -> tuple[Pair, Lanes]:
    """Of an f32 that is a multiple of 2**17, by the method of Payne and Hanek (Muller, chapter 11).

    Digits of 1/(2 pi) whose products are whole turns are left out, or vanish with the nearest integer. The
    products of the other digits are exact, and the rounding error of their sum is kept beside it (Knuth's two-sum).
    """
    angle = x.to(F64)
    turns, rest = angle.constant(0.0), angle.constant(0.0)
    for c in _PIECES:
        product = angle * c
        part = product - product.nearest()
        total = turns + part
        grown = total - turns
        rest = rest + ((turns - (total - grown)) + (part - grown))
        turns = total
    quarters = turns * 4.0
    n = quarters.nearest()
    r = rest.times_plus(4.0, quarters - n) * (math.pi / 2)
    return (r, r.constant(0.0)), (n + _ROUNDER).bits().to(I32)
