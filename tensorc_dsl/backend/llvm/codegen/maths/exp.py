"""`exp` of f32, and functions that use it and one division: `sigmoid`, and `tanh` and `erf` for large arguments."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes

# (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2, highest power first; all such coefficients are from bench/minimax.py.
_EXP = (0.0013940645148977637, 0.008368827402591705, 0.04166640341281891, 0.1666651964187622, 0.5)

_LOG2_E = 1.4426950408889634

# ln 2 as the sum of two float32: n times the first is subtracted exactly by an fma (Cody and Waite; Muller, Elementary
# Functions, chapter 11).
LN2 = 0.693147182464599609375, -1.904654323148236017e-09

# Adding 1.5 * 2**23 to a small float leaves its nearest integer in the low bits.
_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000


def exp(x: Lanes) -> Lanes:
    """e**x within 1 ulp; 0 below -104, infinity above 89, NaN for NaN.

    2**n is applied by an instruction, or as two factors, so that results below the least normal number are rounded once, and
    those above the largest overflow.
    """
    p, shifted = _parts(x.limited(-104.0, 89.0))
    scaled = p.scaled(shifted - _ROUNDER)
    if scaled is not None:
        return scaled
    n = shifted.bits() - _ROUNDER_BITS
    half = n.halved()
    for part in (half, n - half):
        p = p * ((part + 127) << 23).bits()
    return p


def exp_of_moderate(x: Lanes) -> Lanes:
    """e**x for -87 <= x <= 88; any value for other x and NaN."""
    p, shifted = _parts(x)
    scaled = p.scaled(shifted - _ROUNDER)
    return (p.bits() + ((shifted.bits() - _ROUNDER_BITS) << 23)).bits() if scaled is None else scaled


def _parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """exp(r) and n + _ROUNDER for the integer n, where x = n*ln2 + r with |r| <= ln2/2."""
    shifted = x.times_plus(_LOG2_E, _ROUNDER)
    n = shifted - _ROUNDER
    r = n.times_plus(-LN2[1], n.times_plus(-LN2[0], x))
    return r.polynomial(_EXP).times_plus(r * r, r) + 1.0, shifted


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + exp(-x)), never outside 0 … 1.

    With z = exp(-|x|), which cannot overflow, and w = z / (1 + z), it is 1 - w, or z - z*w for a negative x, in which the
    error of w counts z times only.
    """
    z = exp(-x.size())
    w = z / (z + 1.0)
    most = (x >= 0.0).choose(x.constant(1.0), z)
    return (-most).times_plus(w, most)
