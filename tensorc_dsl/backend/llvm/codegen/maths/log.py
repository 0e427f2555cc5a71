"""Logarithms: `log`, `log2`, `log10` and `log1p`."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.maths.exp import LN2
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pairs import lost, times
from tensorc_dsl.ir.dtypes import F32, F64

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
