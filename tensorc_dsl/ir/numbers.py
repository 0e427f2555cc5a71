"""What numbers become where they are made values of a type: floats the nearest one, integers what is left modulo the width.

These are the conversions of the language for one number; `ir.values` does the same for whole arrays, and the code generator
writes instructions that do. `docs/reference/compute.md` says them to users.
"""

from __future__ import annotations

import math

from tensorc_dsl.ir.dtypes import DType

_FORMATS: dict[str, tuple[int, int, int]] = {
    "f16": (11, -24, 16), "bf16": (8, -133, 128), "f32": (24, -149, 128), "f64": (53, -1074, 1024),
}  # fmt: skip
"""Of each float type the bits of a mantissa, the exponent of the least number, and that of the first power of 2 beyond."""


def limits(t: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    return (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)


def wrapped(n: int, t: DType) -> int:
    """The value of an integer type that is `n` modulo its width."""
    low, _ = limits(t)
    return (n - low) % 2**t.bits + low


def truncated(x: float, t: DType) -> int:
    """A float as an integer: without its fraction, the nearest end where the type holds nothing like it, and 0 for NaN."""
    low, high = limits(t)
    if math.isnan(x):
        return 0
    return low if x <= low else high if x >= high else int(x)


def nearest(x: int | float, t: DType) -> float:
    """The value of a float type that is nearest to a number, of two the even one; infinite where none is as large."""
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
    """A number of 52 bits that rounds as `n` does to any type of less: its last bit is set where others are lost."""
    lost = n.bit_length() - 52
    if lost <= 0:
        return n
    return (n >> lost | (n & (1 << lost) - 1 != 0)) << lost


def holds(t: DType, s: DType) -> bool:
    """Whether every value of `s` is one of `t`, which is no bool, so that a conversion changes nothing."""
    if s == t or s.kind == "bool":
        return True
    if not t.is_float:
        return s.is_integer and limits(t)[0] <= limits(s)[0] and limits(s)[1] <= limits(t)[1]
    if not s.is_float:
        return s.bits - (s.kind == "int") <= _FORMATS[t.name][0]
    (bits, least, beyond), (own, lowest, above) = _FORMATS[t.name], _FORMATS[s.name]
    return own <= bits and least <= lowest and above <= beyond
