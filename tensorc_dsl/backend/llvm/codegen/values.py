"""LLVM values and types as text: how element types are spelled, and constants of them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace

from tensorc_dsl.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its element type, its spelling, and its number of lanes (0 for a scalar)."""

    dtype: DType
    ref: str
    lanes: int = 0

    @property
    def type(self) -> str:
        return vector_type(element(self.dtype), self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.ref}"


def element(t: DType) -> str:
    """The type of an element in a register. bf16 is held as its bits: LLVM's own needs a library on most targets."""
    match t.name:
        case "f32":
            return "float"
        case "f64":
            return "double"
        case "f16":
            return "half"
        case _:
            return f"i{t.bits}"


def in_memory(t: DType) -> str:
    """The type of an element in memory: a bool is a byte."""
    return "i8" if t.kind == "bool" else element(t)


def vector_type(element_type: str, lanes: int) -> str:
    return f"<{lanes} x {element_type}>" if lanes else element_type


def _single(x: float) -> float:
    """`x` rounded to the nearest float32; too large becomes an infinity."""
    try:
        return float(struct.unpack("f", struct.pack("f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def bf16_bits(x: float) -> int:
    """The bits of the nearest bf16, ties to even."""
    bits = int(struct.unpack("I", struct.pack("f", _single(x)))[0])
    if math.isnan(x):
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def literal(t: DType, x: int | float | bool) -> str:
    """A scalar constant of type `t`."""
    if t.kind == "bool":
        return "true" if x else "false"
    if t.is_integer:
        return str(int(x))
    x = float(x)
    match t.name:
        case "bf16":
            return str(bf16_bits(x))
        case "f16":
            try:
                bits = int(struct.unpack("H", struct.pack("e", x))[0])
            except OverflowError:
                bits = 0x7C00 if x > 0 else 0xFC00
            return f"0xH{bits:04X}"
        case "f32":
            return f"0x{struct.unpack('Q', struct.pack('d', _single(x)))[0]:016X}"
        case _:
            return f"0x{struct.unpack('Q', struct.pack('d', x))[0]:016X}"


def constant_value(t: DType, x: int | float | bool, lanes: int = 0) -> Value:
    """A constant, the same in all lanes."""
    one = literal(t, x)
    return Value(t, f"splat ({element(t)} {one})" if lanes else one, lanes)


def with_dtype(v: Value, t: DType) -> Value:
    return replace(v, dtype=t)
