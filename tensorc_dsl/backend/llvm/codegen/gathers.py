"""Loads lanes from anywhere, only those that a mask holds for.

Processors gather elements of 32 and 64 bits. For others LLVM writes a branch around the load of each lane: the kernel of a
pipeline of bytes had ten thousand blocks, over which LLVM's register allocator took seconds. So their lanes are loaded one
by one without branches, and a lane that is masked off loads a zero of the function's own.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.values import Value, constant_value, in_memory, mangled, vector_type
from tensorc_dsl.ir.dtypes import BOOL, DType

WORDS = (4, 8)
"""The sizes in bytes of elements that an instruction gathers."""


def can_mask(f: Function, t: DType) -> bool:
    """Whether processors load lanes of a type under a mask, adjacent ones or from anywhere."""
    return t.bytes in WORDS and "avx2" in f.module.features


def gathered(f: Function, pointers: str, t: DType, lanes: int, mask: Value | None, loaded: Callable[[str], str]) -> str:
    """The elements at a vector of pointers as they are in memory; 0 in lanes that are masked off, which access no memory of
    the caller. `loaded` writes an instruction that loads."""
    kind, places = vector_type(in_memory(t), lanes), f"<{lanes} x ptr>"
    if mask is not None and not can_mask(f, t):
        return _one_by_one(f, pointers, t, mask, loaded)
    mask = mask or constant_value(BOOL, True, lanes)
    name = f"llvm.masked.gather.{mangled(t, lanes)}.v{lanes}p0"
    f.module.declare(kind, name, (places, "i32", mask.type, kind))
    return loaded(f"call {kind} @{name}({places} {pointers}, i32 {t.bytes}, {mask.typed}, {kind} zeroinitializer)")


def _one_by_one(f: Function, pointers: str, t: DType, mask: Value, loaded: Callable[[str], str]) -> str:
    lanes, element = mask.lanes, in_memory(t)
    kind, places = vector_type(element, lanes), f"<{lanes} x ptr>"
    zero = f.cached(f"insertelement {places} poison, ptr {f.zero()}, i64 0")
    nowhere = f.cached(f"shufflevector {places} {zero}, {places} poison, <{lanes} x i32> zeroinitializer")
    safe = f.cached(f"select {mask.typed}, {places} {pointers}, {places} {nowhere}")
    ref = "poison"
    for k in range(lanes):
        place = f.cached(f"extractelement {places} {safe}, i64 {k}")
        ref = f.op(
            f"insertelement {kind} {ref}, {element} {loaded(f'load {element}, ptr {place}, align {t.bytes}')}, i64 {k}"
        )
    return ref
