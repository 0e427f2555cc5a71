"""`sin` and `cos` of f32: the angle is reduced in float64, the polynomials are in f32."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.scalars import any_lane
from tensorc_dsl.ir.dtypes import F32, F64, I32

# (sin(r) - r) / r^3 and (cos(r) - 1 + r^2/2) / r^4 in r^2 for |r| <= pi/4
_SIN = (-0.00019518405315466225, 0.008332190103828907, -0.16666655242443085)
_COS = (2.4430670237052254e-05, -0.00138873013202101, 0.04166664555668831)

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
    return x.equals(0.0).choose(x, _wave(r, quadrant))


def cos(x: Lanes) -> Lanes:
    """The cosine of an angle of any size; NaN at the infinities."""
    r, quadrant = _reduced(x)
    return _wave(r, quadrant + 1)


def _wave(r: Lanes, quadrant: Lanes) -> Lanes:
    """sin(r + quadrant * pi/2)."""
    square = r * r
    sine = (square.polynomial(_SIN) * square).times_plus(r, r)
    cosine = square.polynomial((*_COS, -0.5, 1.0))
    value = (quadrant & 1).equals(0).choose(sine, cosine)
    return (value.bits() ^ ((quadrant & 2) << 30)).bits()


def _reduced(x: Lanes) -> tuple[Lanes, Lanes]:
    """The f32 nearest to x - n*pi/2, at most pi/4 in magnitude, and n modulo 4 as an i32.

    n*pi/2 is subtracted in two steps (Cody and Waite). Below `_LARGE` n has at most 40 bits, and the error is about
    2**-66; no float32 but 0 is nearer than 2**-30 to a multiple of pi/2. The code for large angles runs for all lanes
    if one needs it; its results for the others are discarded, so that a result does not depend on its neighbours.
    """
    angle = x.to(F64)
    shifted = angle.times_plus(2 / math.pi, _ROUNDER)
    n = shifted - _ROUNDER
    r = n.times_plus(-_HALF_PI[1], n.times_plus(-_HALF_PI[0], angle)).to(F32)
    quadrant = shifted.bits().to(I32)
    large = x.size() >= _LARGE
    f = x.f
    before, some, after = f.block, f.label("large"), f.label("after")
    f.branch_if(any_lane(f, large.value), some, after)
    f.start_block(some)
    with f.region():
        long_r, long_quadrant = _reduced_large(angle)
        chosen = large.choose(long_r, r), large.choose(long_quadrant, quadrant)
    f.branch(after)
    f.start_block(after)
    return _phi(f, before, r, some, chosen[0]), _phi(f, before, quadrant, some, chosen[1])


def _phi(f: Function, left: str, a: Lanes, right: str, b: Lanes) -> Lanes:
    v = a.value
    return Lanes(f, f.value(v.dtype, f"phi {v.type} [ {v.ref}, %{left} ], [ {b.value.ref}, %{right} ]", v.lanes))


def _reduced_large(angle: Lanes) -> tuple[Lanes, Lanes]:
    """The same for multiples of 2**17 up to 2**128, by the method of Payne and Hanek (Muller, chapter 11).

    Digits of 1/(2 pi) whose products are whole turns are left out, or vanish with the nearest integer. The
    products of the other digits are exact, and the rounding error of their sum is kept beside it (Knuth's two-sum).
    """
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
    return r.to(F32), (n + _ROUNDER).bits().to(I32)
