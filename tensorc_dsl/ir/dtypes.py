"""Element types of buffers and expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
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
