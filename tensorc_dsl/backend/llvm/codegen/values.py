"""LLVM values and types as text: the spelling of element types and constants."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorc_dsl.ir.dtypes import F64, DType
from tensorc_dsl.ir.numbers import code_of, nearest


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
    """The type of an element in a register; of bf16 and floats of 8 bits that of their bits (`soft_floats`)."""
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


def literal(t: DType, x: int | float | bool) -> str:
    """The text of a scalar constant of type `t`."""
    if t.kind == "bool":
        return "true" if x else "false"
    if t.is_integer:
        return str(int(x))
    x = nearest(x, t)
    match element(t):
        case "half":
            return f"0xH{code_of(x, t):04X}"
        case "float" | "double":
            return f"0x{code_of(x, F64):016X}"  # LLVM spells an f32 as the f64 of the same value
        case _:
            return str(code_of(x, t))


def constant_value(t: DType, x: int | float | bool, lanes: int = 0) -> Value:
    """A constant, the same in all lanes."""
    one = literal(t, x)
    return Value(t, f"splat ({element(t)} {one})" if lanes else one, lanes)


def with_dtype(v: Value, t: DType) -> Value:
    return replace(v, dtype=t)
