"""The inverse functions of angles: `atan`, `atan2`, `asin` and `acos`."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.ir.dtypes import F32, F64

# (atan(t) - t) / t^3 in t^2 for |t| <= tan(pi/8)
_ATAN = {
    F32: (
        -0.060897860676050186, 0.10599250346422195, -0.1424441784620285, 0.1999852955341339, -0.33333316445350647,
    ),
    F64: (
        -0.017907510606561868, 0.03806511135546544, -0.05039337221384397, 0.05847898887928008, -0.0666310567708411,
        0.07692060383371188, -0.09090897768473562, 0.11111110783872677, -0.14285714280205491, 0.19999999999953683,
        -0.333333333333332,
    ),
}  # fmt: skip

# (asin(x) - x) / x^3 in x^2 for |x| <= 1/2
_ASIN = {
    F32: (
        0.04223090782761574, 0.02414616383612156, 0.04547636955976486, 0.07495252788066864, 0.16666753590106964,
    ),
    F64: (
        0.03267850934807162, -0.021079838554259243, 0.02176526244284065, 0.0036823344543620304, 0.010786711128766481,
        0.011397744575885126, 0.013980965138462538, 0.01735159979946938, 0.022372215675492572, 0.030381942683133836,
        0.04464285717512889, 0.07499999999970258, 0.16666666666666763,
    ),
}  # fmt: skip

# Multiples of pi/4 as two floats.
_QUARTER = {F32: (0.7853981852531433, -2.1855694143368964e-08), F64: (0.7853981633974483, 3.061616997868383e-17)}
_HALF = {F32: (1.5707963705062866, -4.371138828673793e-08), F64: (1.5707963267948966, 6.123233995736766e-17)}
_THREE = {F32: (2.356194496154785, -5.962440319251527e-09), F64: (2.356194490192345, 9.184850993605148e-17)}
_WHOLE = {F32: (3.1415927410125732, -8.742277657347586e-08), F64: (3.141592653589793, 1.2246467991473532e-16)}

_EIGHTH, _THREE_EIGHTHS = math.sqrt(2) - 1, math.sqrt(2) + 1
"""The tangents of pi/8 and 3 pi/8."""


def atan(x: Lanes) -> Lanes:
    """The angle whose tangent is x; the halves of pi at the infinities, -0 at -0."""
    return _angle(x.size(), x.constant(1.0), None).signed_as(x)


def atan2(y: Lanes, x: Lanes) -> Lanes:
    """The angle of the point (x, y) with the special cases of C (ISO/IEC 9899:1999, F.9.1.4)."""
    a, b = y.size(), x.size()
    # Two infinities are as two equal numbers. Sums and multiples of the sizes must not overflow, nor lose digits.
    both = a.equals(math.inf) & b.equals(math.inf)
    one = x.constant(1.0)
    a, b = both.choose(one, a), both.choose(one, b)
    large, small = 2.0 ** (x.format.bias - 2), 2.0 ** (x.format.fraction - x.format.bias)
    up = ((a < small) & (b < small)).choose(x.constant(2.0**x.format.fraction), one)
    factor = ((a > large) | (b > large)).choose(x.constant(0.25), up)
    return _angle(a * factor, b * factor, x.bits() < 0).signed_as(y)


def _angle(a: Lanes, b: Lanes, back: Lanes | None) -> Lanes:
    """The angle from 0 to pi of the point (b, a) with a, b >= 0, or (-b, a) where `back` holds.

    It is a multiple of pi/4 and an angle t with |tan t| <= tan(pi/8), a quotient of sums of a and b.
    """
    t = a.dtype
    steep = a > b * _THREE_EIGHTHS
    flat = (a > b * _EIGHTH).inverted()  # NaN counts as flat
    above = flat.choose(a, steep.choose(-b, a - b))
    below = flat.choose(b, steep.choose(a, a + b))
    tangent = (a.equals(0.0) & b.equals(0.0)).choose(a, above / below)

    def base(n: int) -> Lanes:
        def number(x: float) -> Lanes:
            return a.constant(x)

        zero = number(0.0)
        first = flat.choose(zero, steep.choose(number(_HALF[t][n]), number(_QUARTER[t][n])))
        if back is None:
            return first
        other = flat.choose(number(_WHOLE[t][n]), steep.choose(number(_HALF[t][n]), number(_THREE[t][n])))
        return back.choose(other, first)

    if back is not None:
        tangent = back.choose(-tangent, tangent)
    square = tangent * tangent
    tail = (square.polynomial(_ATAN[t]) * square).times_plus(tangent, base(1))
    return base(0) + (tangent + tail)


def asin(x: Lanes) -> Lanes:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1, -0 at -0."""
    high, low = _HALF[x.dtype]
    a = x.size()
    near, _ = _near(a)
    root, far = _far(a)
    turned = x.constant(high) - (root * 2.0 - far.times_plus(-2.0, low))
    return (a > 0.5).choose(turned, near).signed_as(x)


def _near(x: Lanes) -> tuple[Lanes, Lanes]:
    """The arcsine of |x| <= 1/2 and what it has beyond x."""
    square = x * x
    more = square.polynomial(_ASIN[x.dtype]) * square * x
    return x + more, more


def _far(a: Lanes) -> tuple[Lanes, Lanes]:
    """Half of the arccosine of a >= 1/2, as a float and what is to be added: the arcsine of sqrt((1 - a) / 2)."""
    z = (a.constant(1.0) - a) * 0.5
    root = z.root()
    # What the rounded root lacks: the rest of the square over twice the root.
    lacks = (-root).times_plus(root, z) / (root + root).at_least(2.0 ** (1 - a.format.bias))
    return root, (z.polynomial(_ASIN[a.dtype]) * z).times_plus(root, lacks)


def acos(x: Lanes) -> Lanes:
    """The angle from 0 to pi whose cosine is x; NaN beyond 1, +0 at 1."""
    t, a = x.dtype, x.size()
    _, more = _near(x)
    middle = x.constant(_HALF[t][0]) - (x - (x.constant(_HALF[t][1]) - more))
    root, rest = _far(a)
    right = (root + rest) * 2.0
    left = x.constant(_WHOLE[t][0]) - (root * 2.0 - rest.times_plus(-2.0, _WHOLE[t][1]))
    return (a > 0.5).choose((x > 0.0).choose(right, left), middle)
