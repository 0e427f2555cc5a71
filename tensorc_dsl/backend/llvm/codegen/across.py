"""Folds vectors into one value: halves are combined until one lane is left."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scalars import binary, logic
from tensorc_dsl.backend.llvm.codegen.values import Value
from tensorc_dsl.ir.reductions import FoldOp


def fold_lanes(f: Function, op: FoldOp, vectors: Sequence[Value]) -> Value:
    """All lanes of all vectors combined by `op`, in the order of a tree."""
    groups: dict[int, list[Value]] = {}
    for v in vectors:
        groups.setdefault(v.lanes, []).append(v)
    return _tree(f, op, [_within(f, op, _tree(f, op, same)) for same in groups.values()])


def _tree(f: Function, op: FoldOp, values: Sequence[Value]) -> Value:
    while len(values) > 1:
        pairs = [combined(f, op, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *(values[-1:] if len(values) % 2 else ())]
    return values[0]


def _within(f: Function, op: FoldOp, v: Value) -> Value:
    while v.lanes > 1 and v.lanes % 2 == 0:
        half = v.lanes // 2
        v = combined(f, op, _lanes(f, v, 0, half), _lanes(f, v, half, half))
    return _tree(f, op, [f.lane(v, k) for k in range(v.lanes)]) if v.lanes else v


def _lanes(f: Function, v: Value, first: int, count: int) -> Value:
    picked = ", ".join(f"i32 {k}" for k in range(first, first + count))
    return f.value(v.dtype, f"shufflevector {v.typed}, {v.type} poison, <{count} x i32> <{picked}>", count)


def combined(f: Function, op: FoldOp, a: Value, b: Value) -> Value:
    """`a op b`."""
    return logic(f, op, a, b) if op == "and" or op == "or" else binary(f, op, a, b)
