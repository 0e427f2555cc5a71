"""Exponentials, logarithms, and the functions made of them: `pow`, `cbrt`, `hypot`, the hyperbolic functions and their
inverses, `sigmoid`, `erf` and `erfc`. For f32 and f64; each polynomial is from `bench/minimax.py`."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.arithmetic import Lanes, Pair, lost, over, plus, times, times_double
from tensorc_dsl.ir.dtypes import F32, F64

# `exp`, `exp2`, and functions that use `exp` and one division: `sigmoid`, and those for large arguments of others.


# (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2, highest power first; all such coefficients are from bench/minimax.py.
EXP = {
    F32: (0.0013940645148977637, 0.008368827402591705, 0.04166640341281891, 0.1666651964187622, 0.5),
    F64: (
        2.093473409512835e-09, 2.51093144796723e-08, 2.7557212174136224e-07, 2.7557243470495604e-06,
        2.480158739304988e-05, 0.00019841269886796908, 0.0013888888888852122, 0.008333333333321395, 0.04166666666666673,
        0.16666666666666677, 0.5,
    ),
}  # fmt: skip

# (2^r - 1) / r for |r| <= 1/2
_EXP2 = {
    F32: (
        1.4699980056320783e-05, 0.00015452790830750018, 0.0013336606789380312, 0.00961808580905199, 0.05550406128168106,
        0.24022650718688965, 0.6931471824645996,
    ),
    F64: (
        2.5759647464425347e-11, 4.456709251995099e-10, 7.05487600294305e-09, 1.0178050991943511e-07,
        1.321548686421748e-06, 1.5252733856708946e-05, 0.00015403530393305208, 0.0013333558146390006,
        0.009618129107628513, 0.0555041086648217, 0.24022650695910072, 0.6931471805599453,
    ),
}  # fmt: skip

_LOG2_E = 1.4426950408889634

# ln 2 as the sum of two floats: n times the first is subtracted exactly by an fma (Cody and Waite; Muller, Elementary
# Functions, chapter 11).
LN2 = {
    F32: (0.693147182464599609375, -1.904654323148236017e-09),
    F64: (0.6931471805599453, 2.3190468138462996e-17),
}

# Below the first the result is 0, above the second it is infinite.
_LIMITS = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}
_LIMITS_2 = {F32: (-151.0, 129.0), F64: (-1077.0, 1025.0)}


def exp(x: Lanes, more: Lanes | None = None) -> Lanes:
    """e**(x + more) for a small `more`; 0 and infinity beyond the limits, NaN for NaN."""
    p, shifted = _parts(x.limited(*_LIMITS[x.dtype]), more)
    return _times_power(p, shifted)


def exp2(x: Lanes, more: Lanes | None = None) -> Lanes:
    """2**(x + more) for a small `more`; 0 and infinity beyond the limits, NaN for NaN. A whole x gives a power of two."""
    inside = x.limited(*_LIMITS_2[x.dtype])
    shifted = inside + x.format.rounder
    r = inside - (shifted - x.format.rounder)
    r = r if more is None else r + more
    return _times_power(r.polynomial(_EXP2[x.dtype]).times_plus(r, 1.0), shifted)


def _times_power(p: Lanes, shifted: Lanes) -> Lanes:
    """p * 2**n, of which `shifted` is n plus the rounder.

    2**n is applied by an instruction, or as two factors, so that results below the least normal number are rounded once, and
    those above the largest overflow.
    """
    form = p.format
    scaled = p.scaled(shifted - form.rounder)
    if scaled is not None:
        return scaled
    n = shifted.bits() - form.rounder_bits
    half = n.halved()
    for part in (half, n - half):
        p = p * ((part + form.bias) << form.fraction).bits()
    return p


def exp_of_moderate(x: Lanes) -> Lanes:
    """e**x for -87 <= x <= 88; any value for other x and NaN."""
    form = x.format
    p, shifted = _parts(x)
    scaled = p.scaled(shifted - form.rounder)
    return (p.bits() + ((shifted.bits() - form.rounder_bits) << form.fraction)).bits() if scaled is None else scaled


def reduced(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """n + the rounder for the whole n, and x - n*ln2 as a float, at most ln2/2 in size, and what it lacks."""
    high, low = LN2[x.dtype]
    shifted = x.times_plus(_LOG2_E, x.format.rounder)
    n = shifted - x.format.rounder
    first = n.times_plus(-high, x)
    r = n.times_plus(-low, first)
    return shifted, r, n.times_plus(-low, first - r)


def _parts(x: Lanes, more: Lanes | None = None) -> tuple[Lanes, Lanes]:
    """exp(r) and n + the rounder for the whole n, where x + more = n*ln2 + r with |r| <= ln2/2."""
    shifted, r, rest = reduced(x)
    curve, square = r.polynomial(EXP[x.dtype]), r * r
    tail = curve.times_plus(square, r)
    if more is not None:  # it counts exp(r) times
        tail = curve.times_plus(square, rest + tail.times_plus(more, more)) + r
    return tail + 1.0, shifted


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + exp(-x)), never outside 0 … 1.

    With z = exp(-|x|), which cannot overflow, and w = z / (1 + z), it is 1 - w, or z - z*w for a negative x, in which the
    error of w counts z times only.
    """
    z = exp(-x.size())
    w = z / (z + 1.0)
    most = (x >= 0.0).choose(x.constant(1.0), z)
    return (-most).times_plus(w, most)


# `expm1`, and the hyperbolic functions, which are quotients and sums of it.


# From the first down exp(x) - 1 is -1, from the second up half of exp(x) is infinite.
_EXPM1_LIMITS = {F32: (-18.0, 89.5), F64: (-38.0, 710.5)}


def expm1(x: Lanes) -> Lanes:
    """exp(x) - 1, with all digits near 0; -0 at -0, -1 at -infinity."""
    tiny = 2.0 ** -(x.format.fraction + 2)
    return (x.size() < tiny).choose(x, quarter(x) * 4.0)


def quarter(x: Lanes) -> Lanes:
    """(exp(x) - 1) / 4, which is finite where sinh and cosh are; it loses digits of x near the least normal number.

    With x = n*ln2 + r and h = 2**n / 4 it is (h - 1/4) + h*r + h*(exp(r) - 1 - r), and the first two are added exactly.
    """
    form = x.format
    shifted, r, rest = reduced(x.limited(*_EXPM1_LIMITS[x.dtype]))
    tail = r.polynomial(EXP[x.dtype]).times_plus(r * r, rest)
    h = ((shifted.bits() - (form.rounder_bits - form.bias + 2)) << form.fraction).bits()
    first, second = h - 0.25, h * r
    total = first + second
    return total + h.times_plus(tail, lost(first, second, total))


def sinh(x: Lanes) -> Lanes:
    """The hyperbolic sine: with q = (exp|x| - 1) / 4 twice q + q / (4q + 1); x itself where its cube is below half an ulp."""
    a = x.size()
    q = quarter(a)
    # From some q on the quotient is 1/4.
    moderate = q.limited(0.0, 2.0**60)
    below = moderate.times_plus(4.0, 1.0)
    second = over((moderate, x.constant(0.0)), (below, lost(x.constant(1.0), moderate * 4.0, below)))
    found = ((q + second) * 2.0).signed_as(x)
    return (a < 2.0 ** -(x.format.fraction // 2 + 2)).choose(x, found)


def cosh(x: Lanes) -> Lanes:
    """The hyperbolic cosine: with h = exp|x| / 2 it is h + 1 / (4h)."""
    h = quarter(x.size()).times_plus(2.0, 0.5)
    return h + h.constant(0.25) / h


# `tanh`.


# (tanh(x) - x) / x^3 in x^2 for 0 <= x <= 0.625, for f32
TANH_NEAR = (
    -0.005714063532650471,
    0.020648062229156494,
    -0.053742773830890656,
    0.1333148330450058,
    -0.3333328366279602,
)

_BORDER = 0.625
_ONE_FROM_HERE = {F32: 10.0, F64: 20.0}
"""Values above 9.02 and 19.1, from where on tanh is within half an ulp of 1."""


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent, never outside -1 … 1."""
    return (_of_single if x.dtype == F32 else _of_double)(x)


def _of_double(x: Lanes) -> Lanes:
    """With q = (exp(2|x|) - 1) / 4 it is q / (q + 1/2); x itself where its cube is below half an ulp."""
    a = x.size()
    q, half = quarter(a.limited(0.0, _ONE_FROM_HERE[F64]) * 2.0), x.constant(0.5)
    below = q + half
    found = over((q, x.constant(0.0)), (below, lost(half, q, below)))
    return (a < 2.0**-28).choose(x, found.signed_as(x))


def _of_single(x: Lanes) -> Lanes:
    """A polynomial near 0, else 1 - 2 / (exp(2|x|) + 1), which is faster than the other quotient, and nearer.

    NaN does not compare as beyond the border, so it passes through the polynomial.
    """
    a = x.size()
    square = a * a
    near = square.polynomial(TANH_NEAR).times_plus(square * a, a)
    e = exp_of_moderate(a.limited(0.0, _ONE_FROM_HERE[F32]) * 2.0)
    far = x.constant(1.0) - x.constant(2.0) / (e + 1.0)
    return (a >= _BORDER).choose(far, near).signed_as(x)


# `erf` and `erfc`.


# erf(x) / x - 1 in x^2 for 0 <= x <= 1
ERF_NEAR = {
    F32: (
        7.920303323771805e-05, -0.0008030750323086977, 0.005190733354538679, -0.02685512602329254, 0.11283618211746216,
        -0.3761262893676758, 0.12837916612625122,
    ),
    F64: (
        5.960734682363823e-11, -1.1374984413037129e-09, 1.4660335969418314e-08, -1.6350397266341223e-07,
        1.6461008572046525e-06, -1.4925595777716748e-05, 0.00012055331133167845, -0.0008548326981430699,
        0.005223977624828505, -0.02686617064507788, 0.11283791670954885, -0.3761263890318375, 0.1283791670955126,
    ),
}  # fmt: skip

# log(erfc(x)) for 1 <= x <= 4; an error of it counts erfc(x) times in the result
ERF_FAR = (
    0.0001855772570706904, -0.0029396265745162964, 0.021805359050631523, -0.10303740203380585, -0.6382256746292114,
    -1.1270400285720825, -0.00035372094134800136,
)  # fmt: skip

# exp(x^2) erfc(x) (1 + 2x) in (x - 4) / (x + 4) for 0 <= x <= 28: it goes from 1 to 2 / sqrt(pi), through 1.28
_SCALED = (
    -1.7162455602581445e-09, -1.3398907591458981e-08, -7.817456604775876e-09, 1.1457547953167116e-07,
    6.249191117066149e-08, -8.342229073640516e-07, 3.018343226981021e-07, 5.7172522333990035e-06, -1.1225200987500523e-05,
    -2.4402906473094203e-05, 0.00015062243751732846, -0.00019925557641178388, -0.0007577733958838441,
    0.0050319697673496255, -0.01619773404991162, 0.03716751556131269, -0.06633036581241723, 0.09373283499686472,
    -0.10103906603630877, 0.06809705425473522, 0.015379652102619922, -0.1396211168405629, 1.2329951186255526,
)  # fmt: skip

_ERF_BORDER, _MIDDLE = 1.0, 0.8
_ERF_ONE_FROM_HERE = 4.0
"""A value above 3.92, from where on erf is within half an ulp of 1."""

_ZERO_FROM_HERE = 28.0
"""A value above 27.3, from where on erfc is below the least f64."""


def erf(x: Lanes) -> Lanes:
    """The error function, never outside -1 … 1: a polynomial near 0, else 1 - erfc(|x|).

    NaN does not compare as beyond the border, so it passes through the polynomial.
    """
    a = x.size()
    near = (a * a).polynomial(ERF_NEAR[x.dtype]).times_plus(a, a)
    if x.dtype == F32:
        rest = exp_of_moderate(a.limited(_ERF_BORDER, _ERF_ONE_FROM_HERE).polynomial(ERF_FAR))
    else:
        rest = _beyond(a.limited(_ERF_BORDER, _ZERO_FROM_HERE))
    return (a >= _ERF_BORDER).choose(x.constant(1.0) - rest, near).signed_as(x)


def erfc(x: Lanes) -> Lanes:
    """1 - erf(x), computed in f64: next to 0 by its polynomial, 2 - erfc(-x) for another negative x."""
    wide = x.to(F64)
    a = wide.size()
    near = wide.constant(1.0) - (a * a).polynomial(ERF_NEAR[F64]).times_plus(wide, wide)
    rest = _beyond(a.limited(_MIDDLE, _ZERO_FROM_HERE))
    far = (wide < 0.0).choose(wide.constant(2.0) - rest, rest)
    return (a >= _MIDDLE).choose(far, near).to(x.dtype)


def _beyond(a: Lanes) -> Lanes:
    """erfc(a) of f64 for 0 <= a <= 28: exp(-a^2) times what changes little (M. M. Shepherd and J. G. Laframboise, Chebyshev
    Approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity, Mathematics of Computation 36(153), 1981)."""
    square, lacks = times(a, a)
    changing = ((a - 4.0) / (a + 4.0)).polynomial(_SCALED)
    below = a.times_plus(2.0, 1.0)
    return exp(-square, -lacks) * over((changing, a.constant(0.0)), (below, lost(a.constant(1.0), a * 2.0, below)))


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

_MOST_EXPONENT = 1100.0
"""2 to the power of it is infinite, and of its opposite 0."""


def magnitude_64(a: Lanes, y: Lanes) -> Lanes:
    """a**y for a >= 0; any value if y is 0."""
    exponent = y.limited(-_LARGEST, _LARGEST)
    high, low = _log2(a)
    power, rest = times(exponent, high)
    power = a.equals(0.0).choose(exponent * -math.inf, power)
    power = (a < math.inf).choose(power, exponent * a)
    near = power.size() < _MOST_EXPONENT
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
    tail = times_double(z, (factor, less + _THIRD[1]))
    whole, less = plus(one, tail[0])
    found = times_double(
        times_double(s, (whole, less + tail[1])), (a.constant(_TWO_PER_LN2[0]), a.constant(_TWO_PER_LN2[1]))
    )
    high, low = plus(e, found[0])
    return plus(high, low + found[1])


# `pow`, of which that of f64 has its own magnitudes.


# log2((1 + s) / (1 - s)) / s in s^2, for a quotient between the roots of 1/2 and 2
_LOG2 = (0.34075935661249107, 0.41167113430783164, 0.5770836115918513, 0.9617966731999398, 2.8853900817902027)

# 2^r for |r| <= 1/2
_POWER_OF_2 = (
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
    p = (t - (shifted - _ROUNDER)).polynomial(_POWER_OF_2)
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
