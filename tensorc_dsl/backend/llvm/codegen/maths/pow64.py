"""The magnitude of `pow` of f64: 2**(y * log2|x|), with a logarithm of about 64 bits."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.exp import exp2
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.log import split
from tensorc_dsl.backend.llvm.codegen.maths.pairs import Pair, lost, plus, times, times_pair

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


def magnitude(a: Lanes, y: Lanes) -> Lanes:
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
