"""`exp`, `exp2`, and functions that use `exp` and one division: `sigmoid`, and those for large arguments of others."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.ir.dtypes import F32, F64

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
