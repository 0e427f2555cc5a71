"""Writes stores: scalars, the lanes of a piece, and what all lanes fold into."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.across import combined, fold_lanes
from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.scope import Piece
from tensorc_dsl.backend.llvm.codegen.values import Value, in_memory, mangled
from tensorc_dsl.ir.dtypes import BOOL
from tensorc_dsl.ir.expr import Load
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.reductions import fold_of


def write_store(e: Expressions, s: Store, at: Piece | None) -> None:
    """Write a store of one element, or of the lanes of a piece."""
    f, index = e.f, s.indices[0]
    value = e.value(s.value, at)
    t = value.dtype
    if at is None:
        _store_one(e, value, e.target(s.buffer, index, None))
        return
    step = e.stride(index, at)
    value = f.splat(value, at.width)
    if step == 1 and at.mask is None:
        e.put(value, s.buffer, index, at)
    elif step == 1 and at.mask is not None:
        value = e.to_memory(value)
        pointer = e.target(s.buffer, index, at)
        name = f"llvm.masked.store.{mangled(t, at.width)}.p0"
        f.module.declare("void", name, (value.type, "ptr", "i32", at.mask.type))
        f.line(f"call void @{name}({value.typed}, ptr {pointer}, i32 {t.bytes}, {at.mask.typed})")
    elif at.mask is None and step is not None:
        first = e.target(s.buffer, index, at)
        for k in range(at.width):
            place = f.cached(f"getelementptr {in_memory(t)}, ptr {first}, i64 {k * step}")
            _store_one(e, f.lane(value, k), place)
    else:
        value = e.to_memory(value)
        pointers = e.pointers(s.buffer, index, at)
        mask = at.mask or Value(BOOL, "splat (i1 true)", at.width)
        name = f"llvm.masked.scatter.{mangled(t, at.width)}.v{at.width}p0"
        f.module.declare("void", name, (value.type, f"<{at.width} x ptr>", "i32", mask.type))
        places = f"<{at.width} x ptr> {pointers}, i32 {t.bytes}"
        f.line(f"call void @{name}({value.typed}, {places}, {mask.typed})")


def write_fold(e: Expressions, s: Store, pieces: tuple[Piece, ...]) -> None:
    """Write a store into which all lanes fold: they are folded with each other, then into the stored value."""
    f, fold = e.f, fold_of(s)
    assert fold is not None  # only folds may store to one element from several lanes
    lanes = fold_lanes(f, fold.op, [f.splat(e.value(fold.value, at), at.width) for at in pieces])
    old = e.value(Load(s.buffer, s.indices, lanes.dtype), None)
    _store_one(e, combined(f, fold.op, old, lanes), e.target(s.buffer, s.indices[0], None))


def _store_one(e: Expressions, value: Value, pointer: str) -> None:
    stored = e.to_memory(value)
    e.f.line(f"store {stored.type} {stored.ref}, ptr {pointer}, align {value.dtype.bytes}")
