"""The value of a float type that is nearest to a number: what a literal stands for in it."""

from __future__ import annotations

import math
import struct

from tensorc_dsl.ir.dtypes import DType


def rounded(x: float, t: DType) -> float:
    """`x` rounded to the float type `t`, ties to even; beyond its largest number an infinity."""
    match t.name:
        case "f16":
            return _through("e", x)
        case "bf16":
            return float(struct.unpack("f", struct.pack("I", bf16_bits(x) << 16))[0])
        case "f32":
            return _through("f", x)
        case _:
            return x


def bf16_bits(x: float) -> int:
    """The bits of the nearest bf16, ties to even."""
    bits = int(struct.unpack("I", struct.pack("f", _through("f", x)))[0])
    if math.isnan(x):
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def _through(kind: str, x: float) -> float:
    """`x` as `struct` stores it."""
    try:
        return float(struct.unpack(kind, struct.pack(kind, x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)
