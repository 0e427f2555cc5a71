"""The schedule layer: how it may be computed. Modules, spaces, schedules, targets, and what a file uses of others."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.source import Span
from tensorc_dsl.syntax.tree.expressions import Expr, Stmt
from tensorc_dsl.syntax.tree.parameters import Param
from tensorc_dsl.syntax.tree.span import span_field


@dataclass(frozen=True, slots=True)
class ModuleDef:
    """`module name(params) when cond { body }`; the first parameter is what it applies to (Block or Program)."""

    name: str
    params: tuple[Param, ...]
    when: Expr | None
    body: tuple[Stmt, ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class SpaceDef:
    """`space name for target { rules }`: each rule a module's name or call, in order."""

    name: str
    target: str
    rules: tuple[Expr, ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ScheduleDef:
    """`schedule name for compute { body }`; the blocks and parameters of the compute are in scope by name."""

    name: str
    compute: str
    body: tuple[Stmt, ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class TargetDef:
    """`target avx2 = llvm(vector_bits=256, cores=8)`: a machine of a kind, with its facts."""

    name: str
    kind: str
    facts: tuple[tuple[str, Expr], ...]
    doc: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class UseDecl:
    """`use std.cpu.{a, b}` or `use std.cpu` (then `names` is empty and all its items come by their names)."""

    path: tuple[str, ...]
    names: tuple[str, ...]
    span: Span = span_field()
