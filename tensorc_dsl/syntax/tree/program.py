"""The program layer: loops, blocks and buffers as text."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax.tree.expressions import Expr, RangeExpr
from tensorc_dsl.syntax.tree.parameters import TensorParam, TensorType
from tensorc_dsl.syntax.tree.span import span_field
from tensorc_dsl.syntax.tree.word import Word


@dataclass(frozen=True, slots=True)
class BufferDecl:
    """`buffer B: f32[64, 64] in "local"`."""

    name: Word
    type: TensorType
    scope: str | None
    annotations: tuple[tuple[str, Expr], ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class LoopHeader:
    """`i in 64`."""

    name: Word
    extent: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class LoopStmt:
    """`for i in 64, j in 64 { … }`; kind is written before: `parallel for i in 8 { … }`; `@("key", value)` after it.

    `axis` is the axis of a bound loop: `bound("block.x") for i in 8 { … }`.
    """

    kind: str
    axis: str | None
    loops: tuple[LoopHeader, ...]
    annotations: tuple[tuple[str, Expr], ...]
    body: tuple[ProgramStmt, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class IterDecl:
    """`spatial vi in 64 = i`."""

    kind: str
    name: Word
    extent: Expr
    binding: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class StoreStmt:
    """`B[vi, vj] = e`."""

    buffer: Word
    indices: tuple[Expr, ...]
    value: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class BlockStmt:
    """`block C { spatial …; reduce …; where c; init { … } stores }`."""

    name: Word
    iters: tuple[IterDecl, ...]
    where: tuple[Expr, ...]
    init: tuple[StoreStmt, ...]
    body: tuple[StoreStmt, ...]
    annotations: tuple[tuple[str, Expr], ...]
    span: Span = span_field()


ProgramStmt = LoopStmt | BlockStmt


@dataclass(frozen=True, slots=True)
class ProgramDef:
    """`program name(A: f32[M, 64], …) where M in 1..64 { buffers; statements }`."""

    name: Word
    params: tuple[TensorParam, ...]
    sizes: tuple[tuple[Word, RangeExpr], ...]
    buffers: tuple[BufferDecl, ...]
    body: tuple[ProgramStmt, ...]
    annotations: tuple[tuple[str, Expr], ...]
    doc: str
    span: Span = span_field()
