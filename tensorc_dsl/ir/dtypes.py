"""Element types of buffers and expressions."""

from __future__ import annotations

import math
from typing import Literal

from tensorc_dsl.base.frozen import frozen

Kind = Literal["float", "int", "uint", "bool"]


@frozen
class DType:
    """A scalar type: its name in the language, its kind and its width in bits."""

    name: str
    kind: Kind
    bits: int

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def has_arithmetic(self) -> bool:
        """Whether there is arithmetic on values of the type. Floats of 8 bits are stored, passed on and converted."""
        return not (self.is_float and self.bits == 8)

    def has_bits_of(self, other: DType) -> bool:
        """Whether one of the types is a float, and the other the unsigned integer of its width."""
        return self.bits == other.bits and {self.kind, other.kind} == {"float", "uint"}

    def __str__(self) -> str:
        return self.name


F8E4M3 = DType("f8e4m3", "float", 8)
"""4 bits of exponent, 3 of mantissa, no infinities (OCP 8-bit Floating Point Specification, E4M3; "E4M3FN" elsewhere)."""
F8E5M2 = DType("f8e5m2", "float", 8)
"""5 bits of exponent, 2 of mantissa, as IEEE 754 would have them (OCP 8-bit Floating Point Specification, E5M2)."""
F16 = DType("f16", "float", 16)
BF16 = DType("bf16", "float", 16)
F32 = DType("f32", "float", 32)
F64 = DType("f64", "float", 64)
I8 = DType("i8", "int", 8)
I16 = DType("i16", "int", 16)
I32 = DType("i32", "int", 32)
I64 = DType("i64", "int", 64)
U8 = DType("u8", "uint", 8)
U16 = DType("u16", "uint", 16)
U32 = DType("u32", "uint", 32)
U64 = DType("u64", "uint", 64)
BOOL = DType("bool", "bool", 1)
INDEX = DType("index", "int", 64)
"""The type of loop variables, extents and subscripts: signed, 64 bits, with division that rounds down."""

DTYPES: dict[str, DType] = {
    t.name: t for t in (F8E4M3, F8E5M2, F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
}
"""The types a user can write, by name (`index` is not among them)."""


# Conversions of single numbers: a float type takes the nearest value, an integer type the value modulo its width.
#
# `reference.values` has the same conversions for whole arrays, and the code generator writes instructions for them.
# `docs/reference/compute.md` describes them for users.


_FORMATS: dict[str, tuple[int, int, int]] = {
    "f8e4m3": (4, -9, 9), "f8e5m2": (3, -16, 16),
    "f16": (11, -24, 16), "bf16": (8, -133, 128), "f32": (24, -149, 128), "f64": (53, -1074, 1024),
}  # fmt: skip
"""Of each float type: bits of the mantissa, exponent of the least number, exponent of the first power of 2 that overflows."""

_FINITE = {"f8e4m3": 448.0}
"""The largest number of a type without infinities: its only code above that is NaN."""


def limits(t: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    return (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)


def lowest(t: DType) -> int | float:
    """The least value of the type, or -inf."""
    if t.is_float:
        return -_FINITE.get(t.name, math.inf)
    return limits(t)[0]


def highest(t: DType) -> int | float:
    """The greatest value of the type, or inf."""
    if t.is_float:
        return _FINITE.get(t.name, math.inf)
    return limits(t)[1]


def largest_finite(t: DType) -> float:
    """The largest finite value of a float type; infinity for integers, which wrap."""
    if not t.is_float:
        return float("inf")
    bits, _, exponent = _FORMATS[t.name]
    return _FINITE.get(t.name, 2.0 ** (exponent - 1) * (2.0 - 2.0 ** (1 - bits)))


def overflowed(t: DType) -> float:
    """What a float type has for a number beyond its largest: infinity, or NaN if it has none."""
    return math.nan if t.name in _FINITE else math.inf


def overflows_above(t: DType) -> float:
    """The number above which a float type has none: the middle between its largest and the next one of the same grid."""
    bits, _, exponent = _FORMATS[t.name]
    return largest_finite(t) + 2.0 ** (exponent - 1 - bits)


def holds_value(t: DType, x: int | float) -> bool:
    """Whether a float type has a value near `x`: a number that is not too large, an infinity if it has them, NaN."""
    y = nearest(x, t)
    return math.isfinite(y) or math.isnan(x) or (math.isinf(x) and math.isinf(y))


def consecutive(t: DType) -> int:
    """The number up to which a float type has every integer."""
    return 2 ** _FORMATS[t.name][0]


def wrapped_integer(n: int, t: DType) -> int:
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
    """The value of a float type that is nearest to a number, ties to even; `overflowed(t)` if the number is too large."""
    bits, least, beyond = _FORMATS[t.name]
    if isinstance(x, int) and t.bits < 64:
        x = _to_odd(x)
    x = float(x)
    if t.bits == 64 or x == 0 or math.isnan(x):
        return x
    exponent = math.frexp(x)[1]
    if exponent > beyond or math.isinf(x):
        return math.copysign(overflowed(t), x)
    unit = max(exponent - bits, least)
    y = math.ldexp(float(round(math.ldexp(x, -unit))), unit)
    return math.copysign(overflowed(t) if abs(y) > largest_finite(t) else y, x)


def code_of(x: int | float, t: DType) -> int:
    """The bits of the value of a float type that is nearest to a number, as an unsigned integer. Of NaN there is one code."""
    bits, least, beyond = _FORMATS[t.name]
    y = nearest(x, t)
    sign = (math.copysign(1.0, y) < 0) << (t.bits - 1)
    top = (2 * beyond - 1) << (bits - 1)  # the exponent of infinity, where there is one
    if math.isnan(y):
        return (1 << (t.bits - 1)) - 1 if t.bits == 8 else top | 1 << (bits - 2)
    if math.isinf(y) or y == 0:
        return sign | (top if y else 0)
    unit = max(math.frexp(y)[1] - bits, least)
    units = int(math.ldexp(abs(y), -unit))  # the exponent is counted from 1 on, and a normal number has its bit beside
    return sign | (((unit - least) << (bits - 1)) + units)


def value_of(code: int, t: DType) -> float:
    """The value of a float type that has these bits."""
    bits, least, _ = _FORMATS[t.name]
    sign, code = -1.0 if code >> (t.bits - 1) else 1.0, code & ((1 << (t.bits - 1)) - 1)
    if code > code_of(largest_finite(t), t):
        return math.copysign(math.inf if code == code_of(math.inf, t) and overflowed(t) == math.inf else math.nan, sign)
    step = code >> (bits - 1)
    units = code - (max(step - 1, 0) << (bits - 1))
    return sign * math.ldexp(units, max(step - 1, 0) + least)


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


def unit_roundoff(t: DType) -> float:
    """Half the distance from 1 to the next larger number of the type; 0 for integers."""
    bits = {"f8e4m3": 4, "f8e5m2": 3, "f16": 11, "bf16": 8, "f32": 24, "f64": 53}.get(t.name)
    return 0.0 if bits is None else 2.0**-bits


def smallest_normal(t: DType) -> float:
    """The smallest normal value of a float type; 0 for integers."""
    exponent = {"f8e4m3": -6, "f8e5m2": -14, "f16": -14, "bf16": -126, "f32": -126, "f64": -1022}.get(t.name)
    return 0.0 if exponent is None else 2.0**exponent


def flush_threshold(t: DType) -> float:
    """The size below which a result of a type may be flushed to zero, as machines do: of types that have arithmetic."""
    return smallest_normal(t) if t.has_arithmetic else 0.0
