"""`sin`, `cos` and `tan`, with the reduction of their angles, and the inverse functions: `atan`, `atan2`, `asin`,
`acos`.
"""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.arithmetic import Lanes, Pair, any_lane, lost, over, plus, times
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Value
from tensorc_dsl.ir.dtypes import F32, F64, I32, I64, DType

# The reduction of an angle of f64 by quarter turns: a rest of about 100 bits, and the number of quarters.


_HALF_PI_IN_THREE = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33

_PER_TURN = (
    0x0000000000000000,
    0x28BE60DB9391054A,
    0x7F09D5F47D4D3770,
    0x36D8A5664F10E410,
    0x7F9458EAF7AEF158,
    0x6DC91B8E909374B8,
    0x01924BBA82746487,
    0x3F877AC72C4A69CF,
    0xBA208D7D4BAED121,
    0x3A671C09AD17DF90,
    0x4E64758E60D4CE7D,
    0x272117E2EF7E4A0E,
    0xC7FE25FFF7816603,
    0xFBCBC462D6829B47,
    0xDB4D9FB3C9F2C26D,
    0xD3D18FD9A797FA8B,
    0x5D49EEB1FAF97C5E,
    0xCF41CE7DE294A4BA,
    0x9AFED7EC47E35742,
    0x1580CC11BF1EDAEA,
    0xFC33EF0826BD0D87,
)
"""1/(2 pi) in words of 64 bits, the highest first, behind a word of zeros."""

_TABLE = f"@angle.table = internal constant [{len(_PER_TURN)} x i64] [{', '.join(f'i64 {w}' for w in _PER_TURN)}]"

_WORD = """\
  %at{0} = add i64 %word, {0}
  %place{0} = getelementptr i64, ptr @angle.table, i64 %at{0}
  %t{0} = load i64, ptr %place{0}, align 8"""

_TURNS = f"""\
define internal {{ double, double, i64 }} @angle.turns(double %x) nounwind memory(read) {{
  %bits = bitcast double %x to i64
  %magnitude = and i64 %bits, {2**63 - 1}
  %stored = lshr i64 %magnitude, 52
  %exponent = call i64 @llvm.umax.i64(i64 %stored, i64 {1023 + 40})
  %fraction = and i64 %bits, {2**52 - 1}
  %m = or i64 %fraction, {2**52}
  %places = sub i64 %exponent, {1023 + 52 - 64}
  %word = lshr i64 %places, 6
  %shift = and i64 %places, 63
{chr(10).join(_WORD.format(k) for k in range(4))}
{chr(10).join(f"  %w{k} = call i64 @llvm.fshl.i64(i64 %t{k}, i64 %t{k + 1}, i64 %shift)" for k in range(3))}
  %high = mul i64 %m, %w0
  %wide = zext i64 %m to i128
  %wide1 = zext i64 %w1 to i128
  %wide2 = zext i64 %w2 to i128
  %p1 = mul i128 %wide, %wide1
  %p2 = mul i128 %wide, %wide2
  %up2 = lshr i128 %p2, 64
  %low = add i128 %p1, %up2
  %lowest = trunc i128 %low to i64
  %up = lshr i128 %low, 64
  %carried = trunc i128 %up to i64
  %turns = add i64 %high, %carried
  %half = add i64 %turns, {2**61}
  %quarters = lshr i64 %half, 62
  %upper = call i64 @llvm.fshl.i64(i64 %turns, i64 %lowest, i64 2)
  %lower = shl i64 %lowest, 2
  %first = sitofp i64 %upper to double
  %held = call i64 @llvm.fptosi.sat.i64.f64(double %first)
  %left = sub i64 %upper, %held
  %left.float = sitofp i64 %left to double
  %lower.float = uitofp i64 %lower to double
  %small = fmul double %lower.float, {{unit}}
  %second = fadd double %left.float, %small
  %negative = icmp slt i64 %bits, 0
  %factor = select i1 %negative, double {{minus}}, double {{unit}}
  %r = fmul double %first, %factor
  %rest = fmul double %second, %factor
  %back = sub i64 0, %quarters
  %n = select i1 %negative, i64 %back, i64 %quarters
  %made0 = insertvalue {{ double, double, i64 }} poison, double %r, 0
  %made1 = insertvalue {{ double, double, i64 }} %made0, double %rest, 1
  %made2 = insertvalue {{ double, double, i64 }} %made1, i64 %n, 2
  ret {{ double, double, i64 }} %made2
}}""".replace("{unit}", "0x3BF0000000000000").replace("{minus}", "0xBBF0000000000000")
"""The quarter turns in an angle from 2**40 on (for others any), by the method of Payne and Hanek (Muller, chapter 11): the
nearest whole number modulo 4, and the rest as two floats. A float is m * 2**e: digits of 1/(2 pi) whose products with it are
whole turns are left out, and 128 of those behind them decide."""


def reduced(x: Lanes) -> tuple[Pair, Lanes]:
    """x - n*pi/2 as two floats, at most pi/4 in magnitude or a little above, and n as an integer. For |x| below 2**40.

    n*pi/2 is subtracted in three steps (Cody and Waite), of which the first is exact.
    """
    shifted = x.times_plus(2 / math.pi, x.format.rounder)
    n = shifted - x.format.rounder
    first = n.times_plus(-_HALF_PI_IN_THREE[0], x)
    second, less = times(n, x.constant(_HALF_PI_IN_THREE[1]))
    r = first - second
    rest = lost(first, -second, r) - n.times_plus(_HALF_PI_IN_THREE[2], less)
    return plus(r, rest), shifted.bits()


def reduced_large(x: Lanes) -> tuple[Pair, Lanes]:
    """The same for angles from 2**40 on, lane by lane; NaN for infinities and NaN. Any value for smaller ones."""
    f, lanes = x.f, x.value.lanes
    _declare(f.module)
    kinds = (F64, F64, I64)
    parts: list[list[Value]] = [[], [], []]
    for k in range(max(lanes, 1)):
        made = f.op(f"call {{ double, double, i64 }} @angle.turns({f.lane(x.value, k).typed})")
        for n, t in enumerate(kinds):
            parts[n].append(Value(t, f.op(f"extractvalue {{ double, double, i64 }} {made}, {n}")))
    high, low, n = (Lanes(f, f.gather_lanes(p) if lanes else p[0]) for p in parts)
    product, less = times(high, x.constant(_HALF_PI_IN_THREE[0]))
    rest = high.times_plus(_HALF_PI_IN_THREE[1], low.times_plus(_HALF_PI_IN_THREE[0], less))
    return plus(product + (x - x), rest), n


def _declare(module: Module) -> None:
    """Give the module the function, once."""
    for name, count in (("umax", 2), ("fshl", 3)):
        module.declare("i64", f"llvm.{name}.i64", ("i64",) * count)
    module.declare("i64", "llvm.fptosi.sat.i64.f64", ("double",))
    for text in (_TABLE, _TURNS):
        if text not in module.shared:
            module.shared[text] = text
            module.functions.append(text)


# `sin`, `cos` and `tan`: the angle is reduced in float64; of f32 the polynomials are in f32, but for the tangent.


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
    short, long = (reduced, reduced_large) if x.dtype == F64 else (_reduced_short, _reduced_large)
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


# The inverse functions of angles: `atan`, `atan2`, `asin` and `acos`.


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
