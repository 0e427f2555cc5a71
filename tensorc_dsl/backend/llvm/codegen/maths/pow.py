"""`pow`, of which that of f64 has its own magnitudes."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pow64 import magnitude as magnitude_64
from tensorc_dsl.ir.dtypes import F32, F64

# log2((1 + s) / (1 - s)) / s in s^2, for a quotient between the roots of 1/2 and 2
_LOG2 = (0.34075935661249107, 0.41167113430783164, 0.5770836115918513, 0.9617966731999398, 2.8853900817902027)

# 2^r for |r| <= 1/2
_EXP2 = (
    1.5201928561694696e-05, 0.00015469291237378978, 0.0013333922535569097, 0.00961802725336921, 0.05550410353474651,
    0.24022651198159434, 0.6931471807284472, 0.9999999999616823,
)  # fmt: skip

_ONE, _ROOT_HALF = 0x3FF0000000000000, 0x3FE6A09E667F3BCD
"""The bits of 1 and of the float64 next to sqrt(1/2)."""

_INTEGERS = 0x4330000000000000
"""The bits of 2**52, whose low bits count in units of 1."""

_LARGEST = 3.4028234663852886e38
_ROUNDER = 1.5 * 2.0**52


def power(x: Lanes, y: Lanes) -> Lanes:
    """x**y with the special cases of C (ISO/IEC 9899:1999, F.9.4.4).

    The sign and the NaN of a negative base are applied to the power of the magnitude.
    """
    magnitude = magnitude_64(x.size(), y) if x.dtype == F64 else _magnitude(x.size(), y)
    whole = y.nearest().equals(y)
    half = y * 0.5
    odd = whole & half.nearest().differs(half)
    signed = odd.choose(magnitude.signed_as(x), magnitude)
    out = whole.choose(signed, ((x < 0.0) & (x > -math.inf)).choose(x.constant(math.nan), signed))
    return (y.equals(0.0) | x.equals(1.0)).choose(x.constant(1.0), out)


def _magnitude(size: Lanes, y: Lanes) -> Lanes:
    """size**y of f32 for size >= 0; any value if y is 0.

    It is 2**(y * log2(size)) in float64, which neither overflows nor loses significant digits; the only relevant rounding is
    that to f32. An infinite y counts as the largest float32: then 1 gives 1, as required.
    """
    t = log2_to_f32(size.to(F64)) * y.limited(-_LARGEST, _LARGEST).to(F64)
    return exp2_to_f32(t.limited(-200.0, 200.0)).to(F32)


def log2_to_f32(a: Lanes) -> Lanes:
    """log2 of a nonnegative float64 that is not subnormal; -infinity at 0; infinity and NaN are unchanged."""
    shifted = a.bits() + (_ONE - _ROOT_HALF)
    e = ((shifted >> 52) | _INTEGERS).bits() - (2.0**52 + 1023.0)
    m = ((shifted & 0x000FFFFFFFFFFFFF) + _ROOT_HALF).bits()
    s = (m - 1.0) / (m + 1.0)
    y = (s * s).polynomial(_LOG2).times_plus(s, e)
    return (a < math.inf).choose(a.equals(0.0).choose(a.constant(-math.inf), y), a)


def exp2_to_f32(t: Lanes) -> Lanes:
    """2**t for |t| <= 1000, and NaN for a NaN with zeros in its low bits, such as one converted from f32."""
    shifted = t + _ROUNDER
    p = (t - (shifted - _ROUNDER)).polynomial(_EXP2)
    return (p.bits() + (shifted.bits() << 52)).bits()
