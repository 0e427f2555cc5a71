"""The schedule layer: modules, spaces, schedules, targets and uses."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax.tree.expressions import Expr, Stmt
from tensorc_dsl.syntax.tree.parameters import Param
from tensorc_dsl.syntax.tree.span import span_field
from tensorc_dsl.syntax.tree.word import Word


@dataclass(frozen=True, slots=True)
class ConstDef:
    """`const name = value`: a literal with a name, and in `doc` with a reason."""

    name: Word
    value: Expr
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ModuleDef:
    """`module name(params) when cond { body }`; the first parameter is what it applies to (Block or Program)."""

    name: Word
    params: tuple[Param, ...]
    when: Expr | None
    body: tuple[Stmt, ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Weighing:
    """`draw ~ {value: weight, _: weight}` in a prior."""

    draw: Word
    weights: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class SpaceDef:
    """`space name for target { rules }`: each rule is a module's name or call; they are tried in order.

    `prior` has the weights of a space that a `prior` item made of another one; None for the space of a `space` item.
    """

    name: Word
    target: Word
    rules: tuple[Expr, ...]
    doc: str
    span: Span = span_field()
    prior: tuple[Weighing, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScheduleDef:
    """`schedule name for compute { body }`; the blocks and parameters of the compute are in scope by name.

    `prior` is as in `SpaceDef`.
    """

    name: Word
    compute: Word
    body: tuple[Stmt, ...]
    doc: str
    span: Span = span_field()
    prior: tuple[Weighing, ...] | None = None


@dataclass(frozen=True, slots=True)
class PriorDef:
    """`prior name for space { weights }`: a space or schedule by another name, in which some draws have other weights."""

    name: Word
    of: Word
    weights: tuple[Weighing, ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class TargetDef:
    """`target avx2 = llvm(vector_bits=256, cores=8)`: a machine with its kind and its facts."""

    name: Word
    kind: Word
    facts: tuple[tuple[Word, Expr], ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class UseDecl:
    """`use std.cpu.{a, b}`, or `use std.cpu`: then `names` is empty and all items are imported."""

    path: tuple[Word, ...]
    names: tuple[Word, ...]
    span: Span = span_field()
