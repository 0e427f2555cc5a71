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

    def __str__(self) -> str:
        return self.name


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
BOOL = DType("bool", "bool", 1)
INDEX = DType("index", "int", 64)
"""The type of loop variables, extents and subscripts: signed, 64 bits, with division that rounds down."""

DTYPES: dict[str, DType] = {t.name: t for t in (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, BOOL)}
"""The types a user can write, by name (`index` is not among them)."""
