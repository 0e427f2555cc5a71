"""LLVM values and types as text: the spelling of element types and constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.numbers import nearest


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
    """The type of an element in a register. bf16 is held as bits, since LLVM's bf16 needs a library on most targets."""
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


def mangled(t: DType, lanes: int) -> str:
    """LLVM's name of a vector type in the name of an intrinsic; bools are bytes in memory."""
    name = {"float": "f32", "double": "f64", "half": "f16"}.get(in_memory(t), in_memory(t))
    return f"v{lanes}{name}" if lanes else name


def vector_type(element_type: str, lanes: int) -> str:
    return f"<{lanes} x {element_type}>" if lanes else element_type


def _bits(form: str, x: float) -> int:
    """The bits of a float that a `struct` format holds exactly."""
    return int.from_bytes(struct.pack(f"<{form}", x), "little")


def literal(t: DType, x: int | float | bool) -> str:
    """The text of a scalar constant of type `t`."""
    if t.kind == "bool":
        return "true" if x else "false"
    if t.is_integer:
        return str(int(x))
    x = nearest(x, t)
    match t.name:
        case "bf16":
            return str(_bits("f", x) >> 16)
        case "f16":
            return f"0xH{_bits('e', x):04X}"
        case _:
            return f"0x{_bits('d', x):016X}"  # LLVM spells an f32 as the f64 of the same value


def constant_value(t: DType, x: int | float | bool, lanes: int = 0) -> Value:
    """A constant, the same in all lanes."""
    one = literal(t, x)
    return Value(t, f"splat ({element(t)} {one})" if lanes else one, lanes)


def with_dtype(v: Value, t: DType) -> Value:
    return replace(v, dtype=t)
