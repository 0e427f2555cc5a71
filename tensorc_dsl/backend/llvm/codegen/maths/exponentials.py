"""`exp`, `exp2`, `expm1`, `sigmoid`, the hyperbolic functions, `erf` and `erfc`."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes, lost, over, times
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
_TANH = (-0.005714063532650471, 0.020648062229156494, -0.053742773830890656, 0.1333148330450058, -0.3333328366279602)

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
    near = square.polynomial(_TANH).times_plus(square * a, a)
    e = exp_of_moderate(a.limited(0.0, _ONE_FROM_HERE[F32]) * 2.0)
    far = x.constant(1.0) - x.constant(2.0) / (e + 1.0)
    return (a >= _BORDER).choose(far, near).signed_as(x)


# `erf` and `erfc`.


# erf(x) / x - 1 in x^2 for 0 <= x <= 1
_NEAR = {
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
_FAR = (
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
    near = (a * a).polynomial(_NEAR[x.dtype]).times_plus(a, a)
    if x.dtype == F32:
        rest = exp_of_moderate(a.limited(_ERF_BORDER, _ERF_ONE_FROM_HERE).polynomial(_FAR))
    else:
        rest = _beyond(a.limited(_ERF_BORDER, _ZERO_FROM_HERE))
    return (a >= _ERF_BORDER).choose(x.constant(1.0) - rest, near).signed_as(x)


def erfc(x: Lanes) -> Lanes:
    """1 - erf(x), computed in f64: next to 0 by its polynomial, 2 - erfc(-x) for another negative x."""
    wide = x.to(F64)
    a = wide.size()
    near = wide.constant(1.0) - (a * a).polynomial(_NEAR[F64]).times_plus(wide, wide)
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
