"""Conversions of single numbers: a float type takes the nearest value, an integer type the value modulo its width.

`reference.values` has the same conversions for whole arrays, and the code generator writes instructions for them.
`docs/reference/compute.md` describes them for users.
"""

from __future__ import annotations

import math

from tensorc_dsl.ir.dtypes import DType

_FORMATS: dict[str, tuple[int, int, int]] = {
    "f16": (11, -24, 16), "bf16": (8, -133, 128), "f32": (24, -149, 128), "f64": (53, -1074, 1024),
}  # fmt: skip
"""Of each float type: bits of the mantissa, exponent of the least number, exponent of the first power of 2 that overflows."""


def limits(t: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    return (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)


def lowest(t: DType) -> int | float:
    """The least value of the type, or -inf."""
    if t.is_float:
        return float("-inf")
    return limits(t)[0]


def highest(t: DType) -> int | float:
    """The greatest value of the type, or inf."""
    if t.is_float:
        return float("inf")
    return limits(t)[1]


def largest_finite(t: DType) -> float:
    """The largest finite value of a float type; infinity for integers, which wrap."""
    if not t.is_float:
        return float("inf")
    bits, _, exponent = _FORMATS[t.name]
    return 2.0 ** (exponent - 1) * (2.0 - 2.0 ** (1 - bits))


def consecutive(t: DType) -> int:
    """The number up to which a float type has every integer."""
    return 2 ** _FORMATS[t.name][0]


def wrapped(n: int, t: DType) -> int:
    """The value of an integer type that is `n` modulo its width."""
    low, _ = limits(t)
    return (n - low) % 2**t.bits + low


def truncated(x: float, t: DType) -> int:
    """A float as an integer: its fraction is dropped, values beyond the type become its nearest end, NaN becomes 0."""
    low, high = limits(t)
    if math.isnan(x):
        return 0
    return low if x <= low else high if x >= high else int(x)


def nearest(x: int | float, t: DType) -> float:
    """The value of a float type that is nearest to a number, ties to even; infinite if the number is too large."""
    bits, least, beyond = _FORMATS[t.name]
    if isinstance(x, int) and t.bits < 64:
        x = _to_odd(x)
    x = float(x)
    if t.bits == 64 or x == 0 or not math.isfinite(x):
        return x
    exponent = math.frexp(x)[1]
    if exponent > beyond:
        return math.copysign(math.inf, x)
    unit = max(exponent - bits, least)
    y = math.ldexp(float(round(math.ldexp(x, -unit))), unit)
    return math.copysign(math.inf if abs(y) == 2.0**beyond else y, x)


def _to_odd(n: int) -> int:
    """`n` rounded to odd at 52 bits: the last bit is set if others are lost, so a second rounding is right for `n`, too."""
    lost = n.bit_length() - 52
    if lost <= 0:
        return n
    return (n >> lost | (n & (1 << lost) - 1 != 0)) << lost


def holds(t: DType, s: DType) -> bool:
    """Whether `t` is not bool and holds every value of `s`, so that a conversion changes nothing."""
    if s == t or s.kind == "bool":
        return True
    if not t.is_float:
        return s.is_integer and limits(t)[0] <= limits(s)[0] and limits(s)[1] <= limits(t)[1]
    if not s.is_float:
        return s.bits - (s.kind == "int") <= _FORMATS[t.name][0]
    (bits, least, beyond), (own, lowest, above) = _FORMATS[t.name], _FORMATS[s.name]
    return own <= bits and least <= lowest and above <= beyond
