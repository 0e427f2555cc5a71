"""The compute layer: computes, reducers, tasks, and instructions with their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax.tree.expressions import Expr, IndexSpec, Name, RangeExpr
from tensorc_dsl.syntax.tree.parameters import Param, TensorParam, TensorType
from tensorc_dsl.syntax.tree.span import span_field
from tensorc_dsl.syntax.tree.word import Word


@dataclass(frozen=True, slots=True)
class Stage:
    """`let P[n, h in H + 2*pad] @("key", value) = e` (an intermediate, `is_let`) or `Y[i, j] = e` (an output).

    Without indices it is a single value, `let m = max[i] X[i]`, or the whole result of a compute, `let H = matmul(A, B)`.
    """

    name: Word
    indices: tuple[IndexSpec, ...]
    value: Expr
    annotations: tuple[tuple[str, Expr], ...]
    is_let: bool
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Assumption:
    """`name property` or `name in low..high`, behind `assume`: what an input contains."""

    name: Word
    says: Word | RangeExpr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ComputeDef:
    """`compute name(inputs; attributes) -> outputs where dim = e, condition, … assume input property, … { stages }`."""

    name: Word
    inputs: tuple[TensorParam, ...]
    attributes: tuple[Param, ...]
    outputs: tuple[TensorParam, ...]
    where: tuple[tuple[Word, Expr], ...]
    conditions: tuple[Expr, ...]
    """What `where` says of the sizes."""
    assumes: tuple[Assumption, ...]
    stages: tuple[Stage, ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ReducerDef:
    """`reducer name(a, b) = combine identity e assume law`: `a` is the value so far, `b` the next one, `e` the first one.

    The laws behind `assume` are not proved.
    """

    name: Word
    params: tuple[Word, Word]
    combine: Expr
    identity: Expr
    assumes: tuple[Name, ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class TaskDef:
    """`task name = compute(dim=value, …)`, optionally `with space_or_schedule`."""

    name: Word
    compute: Word
    bindings: tuple[tuple[Word, Expr], ...]
    with_: Word | None
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Operand:
    """`A: bf16[16, 16] in "mma.a"`: an operand that an instruction reads or writes, and its required layout."""

    name: Word
    type: TensorType
    layout: str | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Effect:
    """`C[i, j] += sum[k] e` (`adds`) or `C[i, j] = e`: the effect of an instruction on every element of an operand."""

    name: Word
    indices: tuple[IndexSpec, ...]
    value: Expr
    adds: bool
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Layout:
    """`layout "mma.a" (i, k) -> (lane: i % 8 * 4, reg: k / 8)`: the lane and register that hold each element."""

    name: str
    params: tuple[Word, ...]
    places: tuple[tuple[Word, Expr], ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Lowering:
    """`lower llvm requires "avx512vnni" call "llvm.x86…"`: the code for one kind of target (assembly, or a call)."""

    target: Word
    requires: tuple[str, ...]
    kind: Literal["asm", "call"]
    code: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class IntrinsicDef:
    """`intrinsic name desc (operands) { effects } layout … lower …`: an instruction, its meaning and its code."""

    name: Word
    operands: tuple[Operand, ...]
    effects: tuple[Effect, ...]
    layouts: tuple[Layout, ...]
    lowerings: tuple[Lowering, ...]
    doc: str
    span: Span = span_field()
