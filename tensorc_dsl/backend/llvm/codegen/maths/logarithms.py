"""Logarithms, and functions by them: `pow`, `cbrt`, `hypot`, and the inverse hyperbolic functions."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.exponentials import LN2, exp2
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes, Pair, lost, plus, times, times_pair
from tensorc_dsl.ir.dtypes import F32, F64

# Logarithms: `log`, `log2`, `log10` and `log1p`.


# (log(1 + f) - f + f^2/2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG = (
    -0.07636362314224243, 0.12762142717838287, -0.13159598410129547, 0.14201585948467255, -0.1662341058254242,
    0.2000124156475067, -0.2500081956386566, 0.3333333134651184,
)  # fmt: skip

# (log((1 + s) / (1 - s)) - 2s) / s^3 in s^2, for a quotient between the roots of 1/2 and 2
_QUOTIENT = (
    0.14797567694039737, 0.15313897567297077, 0.18183569945306682, 0.22222198472436833, 0.28571428743292804,
    0.3999999999941097, 0.6666666666666735,
)  # fmt: skip

# 1 / ln 2 and 1 / ln 10 as two floats.
_PER_LN2 = {F32: (1.4426950216293335, 1.9259629911266175e-08), F64: (1.4426950408889634, 2.0355273740931033e-17)}
_PER_LN10 = {F32: (0.4342944920063019, -1.0103050052231683e-08), F64: (0.4342944819032518, 1.098319650216765e-17)}

# log10(2) as two floats, the first of so few bits that its product with an exponent is exact.
_LOG10_2 = {F32: (0.301025390625, 4.605038981195214e-06), F64: (0.30102999566361177, 3.694239077158931e-13)}

_ROOT_HALF = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}
"""The bits of the floats next to sqrt(1/2)."""


def log(x: Lanes) -> Lanes:
    """The natural logarithm: -infinity at both zeros, NaN below, infinity at infinity, +0 at 1.

    x = 2**e * m with m between the roots of 1/2 and 2; log x = e*ln2 + log1p(m - 1) (Cody and Waite).
    """
    e, f = split(x)
    return _defined(x, _sum(e, f, None))


def log1p(x: Lanes) -> Lanes:
    """log(1 + x), with all digits near 0: what the rounded 1 + x lacks is added to the logarithm."""
    u = x + 1.0
    e, f = split(u)
    found = _defined(u, _sum(e, f, lost(x.constant(1.0), x, u) / u))
    return (x.size() < 2.0 ** -(x.format.fraction + 2)).choose(x, found)


def log2(x: Lanes) -> Lanes:
    """The logarithm to the base 2; that of a power of two is whole."""
    e, f = split(x)
    product, rest = _scaled(f, _PER_LN2[x.dtype])
    return _defined(x, _added(e, product, rest))


def log10(x: Lanes) -> Lanes:
    """The logarithm to the base 10."""
    e, f = split(x)
    high, low = _LOG10_2[x.dtype]
    product, rest = _scaled(f, _PER_LN10[x.dtype])
    return _defined(x, _added(e * high, product, e.times_plus(low, rest)))


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """e and m - 1 for x = 2**e * m with m between the roots of 1/2 and 2. A subnormal number is multiplied first."""
    form, root = x.format, _ROOT_HALF[x.dtype]
    tiny = x < 2.0 ** (1 - form.bias)
    shifted = tiny.choose(x * 2.0**form.fraction, x).bits() + ((form.bias << form.fraction) - root)
    # The exponent becomes a float as low bits of one; conversions of 64 bits are slow.
    whole = 2.0**form.fraction
    biased = ((shifted >> form.fraction) | ((form.bias + form.fraction) << form.fraction)).bits() - whole
    e = biased - tiny.choose(x.constant(form.bias + form.fraction), x.constant(form.bias))
    m = ((shifted & ((1 << form.fraction) - 1)) + root).bits()
    return e, m - 1.0


def _sum(e: Lanes, f: Lanes, more: Lanes | None) -> Lanes:
    """e*ln2 + log(1 + f) + what is added, which is small."""
    high, low = LN2[f.dtype]
    square, tail = f * f, e * low if more is None else e.times_plus(low, more)
    if f.dtype == F32:
        tail = f.polynomial(_LOG).times_plus(square * f, tail)
    else:
        s, rest = _quotient(f, square)
        tail = s.times_plus(rest, tail)
    return e.times_plus(high, square.times_plus(-0.5, tail) + f)


def _quotient(f: Lanes, square: Lanes) -> tuple[Lanes, Lanes]:
    """Two factors of log(1 + f) - f + f^2/2."""
    s = f / (f + 2.0)
    z = s * s
    return s, square.times_plus(0.5, z * z.polynomial(_QUOTIENT))


def _scaled(f: Lanes, factor: tuple[float, float]) -> tuple[Lanes, Lanes]:
    """log(1 + f) times a factor of two floats, as the sum of a float and a small one."""
    square = f * f
    half = square * 0.5
    main = f - half
    # What the square and the difference lack, and the rest of the logarithm.
    lacks = ((f - main) - half) + f.times_plus(f, -square) * -0.5
    if f.dtype == F32:
        tail = f.polynomial(_LOG).times_plus(square * f, lacks)
    else:
        s, rest = _quotient(f, square)
        tail = s.times_plus(rest, lacks)
    product, rest = times(main, main.constant(factor[0]))
    return product, rest + main.times_plus(factor[1], tail * factor[0])


def _added(whole: Lanes, product: Lanes, rest: Lanes) -> Lanes:
    """The sum; the first is 0 or the larger one."""
    total = whole + product
    return total + ((product - (total - whole)) + rest)


def _defined(x: Lanes, found: Lanes) -> Lanes:
    """The logarithm of x with its values where there is none: infinities and NaN."""
    y = (x < math.inf).choose(found, x)
    return (x > 0.0).choose(y, x.equals(0.0).choose(x.constant(-math.inf), x.constant(math.nan)))


# The magnitude of `pow` of f64: 2**(y * log2|x|), with a logarithm of about 64 bits.


# (atanh(s) / s - 1 - s^2/3) / s^4 in s^2, for (1 + s) / (1 - s) between the roots of 1/2 and 2
_REST = (
    0.05995204746340159, 0.05837325778651526, 0.06668162800654094, 0.07692278329849062, 0.09090909436692593,
    0.1111111110875587, 0.14285714285722606, 0.1999999999999999,
)  # fmt: skip

_THIRD = 0.3333333333333333, 1.850371707708594e-17
_TWO_PER_LN2 = 2.8853900817779268, 4.0710547481862066e-17

_LARGEST = 2.0**70
"""An exponent of this size gives 0, 1 or infinity, whatever the base is."""

_FAR = 1100.0
"""2 to the power of it is infinite, and of its opposite 0."""


def magnitude_64(a: Lanes, y: Lanes) -> Lanes:
    """a**y for a >= 0; any value if y is 0."""
    exponent = y.limited(-_LARGEST, _LARGEST)
    high, low = _log2(a)
    power, rest = times(exponent, high)
    power = a.equals(0.0).choose(exponent * -math.inf, power)
    power = (a < math.inf).choose(power, exponent * a)
    near = power.size() < _FAR
    return exp2(power, near.choose(exponent.times_plus(low, rest), a.constant(0.0)))


def _log2(a: Lanes) -> Pair:
    """log2 of a positive number: e + 2 / ln 2 * atanh((m - 1) / (m + 1)) for a = 2**e * m."""
    e, top = split(a)  # m - 1, which is exact
    one, below = a.constant(1.0), top + 2.0
    s = top / below
    less = lost(a.constant(2.0), top, below)
    s = s, ((-s).times_plus(below, top) - s * less) / below
    high, low = times(s[0], s[0])
    z = high, s[0].times_plus(s[1] * 2.0, low)
    factor, less = plus(a.constant(_THIRD[0]), high * high.polynomial(_REST))
    tail = times_pair(z, (factor, less + _THIRD[1]))
    whole, less = plus(one, tail[0])
    found = times_pair(
        times_pair(s, (whole, less + tail[1])), (a.constant(_TWO_PER_LN2[0]), a.constant(_TWO_PER_LN2[1]))
    )
    high, low = plus(e, found[0])
    return plus(high, low + found[1])


# `pow`, of which that of f64 has its own magnitudes.


# log2((1 + s) / (1 - s)) / s in s^2, for a quotient between the roots of 1/2 and 2
_LOG2 = (0.34075935661249107, 0.41167113430783164, 0.5770836115918513, 0.9617966731999398, 2.8853900817902027)

# 2^r for |r| <= 1/2
_EXP2 = (
    1.5201928561694696e-05, 0.00015469291237378978, 0.0013333922535569097, 0.00961802725336921, 0.05550410353474651,
    0.24022651198159434, 0.6931471807284472, 0.9999999999616823,
)  # fmt: skip

_ONE, _POW_ROOT_HALF = 0x3FF0000000000000, 0x3FE6A09E667F3BCD
"""The bits of 1 and of the float64 next to sqrt(1/2)."""

_INTEGERS = 0x4330000000000000
"""The bits of 2**52, whose low bits count in units of 1."""

_POW_LARGEST = 3.4028234663852886e38
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
    t = log2_to_f32(size.to(F64)) * y.limited(-_POW_LARGEST, _POW_LARGEST).to(F64)
    return exp2_to_f32(t.limited(-200.0, 200.0)).to(F32)


def log2_to_f32(a: Lanes) -> Lanes:
    """log2 of a nonnegative float64 that is not subnormal; -infinity at 0; infinity and NaN are unchanged."""
    shifted = a.bits() + (_ONE - _POW_ROOT_HALF)
    e = ((shifted >> 52) | _INTEGERS).bits() - (2.0**52 + 1023.0)
    m = ((shifted & 0x000FFFFFFFFFFFFF) + _POW_ROOT_HALF).bits()
    s = (m - 1.0) / (m + 1.0)
    y = (s * s).polynomial(_LOG2).times_plus(s, e)
    return (a < math.inf).choose(a.equals(0.0).choose(a.constant(-math.inf), y), a)


def exp2_to_f32(t: Lanes) -> Lanes:
    """2**t for |t| <= 1000, and NaN for a NaN with zeros in its low bits, such as one converted from f32."""
    shifted = t + _ROUNDER
    p = (t - (shifted - _ROUNDER)).polynomial(_EXP2)
    return (p.bits() + (shifted.bits() << 52)).bits()


# Roots: `cbrt` and `hypot`.


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


# `asinh`, `acosh` and `atanh`: logarithms of 1 and more, computed in f64.


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
