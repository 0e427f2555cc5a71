"""Expressions of every layer, and the statements of the schedule layer: a `for` holds statements, a statement expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax.tree.span import span_field
from tensorc_dsl.syntax.tree.word import Word

# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """A name that is used, not defined."""

    id: str
    span: Span = span_field()


MAX_BITS = 256
"""Bits of an integer literal, and of every int that a schedule computes, since traces print such ints as literals."""


@dataclass(frozen=True, slots=True)
class Number:
    """An integer (int) or a decimal (float) literal."""

    value: int | float
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class String:
    value: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`_`: the open factor of a split, or an unused name."""

    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ListExpr:
    items: tuple[Expr, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class MapExpr:
    """`{4: 0.2, 8: 0.8}`: values with weights."""

    items: tuple[tuple[Expr, Expr], ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class BinaryExpr:
    op: Literal["+", "-", "*", "/", "%"]
    lhs: Expr
    rhs: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class CompareExpr:
    """A chain, as in Python: `0 <= h < H` has two operators and three operands."""

    ops: tuple[Literal["<", "<=", ">", ">=", "==", "!="], ...]
    operands: tuple[Expr, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class LogicExpr:
    op: Literal["and", "or"]
    lhs: Expr
    rhs: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class NotExpr:
    operand: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Conditional:
    """`then if cond else other`."""

    cond: Expr
    then: Expr
    other: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class CallExpr:
    """`f(a, b, key=c)`; methods are calls of an `Attribute`."""

    function: Expr
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[Word, Expr], ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class IndexExpr:
    """`A[i, k]` or `b.loops[0]`."""

    base: Expr
    indices: tuple[Expr, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class SliceExpr:
    """`b.loops[1:-1]`: from `low` to `high`, exclusive; a missing bound is the start or the end."""

    base: Expr
    low: Expr | None
    high: Expr | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Attribute:
    base: Expr
    name: Word
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index with an optional written range: `k`, or `h in H + 2*pad`."""

    name: Word
    extent: Expr | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Reduce:
    """`sum[k, r in R] body`, or with a `reducer` item `reduce logsumexp[k] body`; it extends as far right as it can."""

    reducer: Word
    indices: tuple[IndexSpec, ...]
    body: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Scan:
    """`scan[t] init e step e`."""

    index: IndexSpec
    init: Expr
    step: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class RangeExpr:
    """`1..4096`, both ends included; for an open size `1..4096 at [1, 16]`, with the sizes at which it is timed."""

    low: Expr
    high: Expr
    at: tuple[Expr, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Rest:
    """`...` in an index map: all indices that have no name there, in their order."""

    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Lambda:
    """An index map: `(i, j) -> (i / 4, j, i % 4)`. A `Rest` is once on both sides, or on none."""

    params: tuple[Word | Rest, ...]
    results: tuple[Expr | Rest, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ForList:
    """`for x in xs if cond { …; yield e }`: the list of the values yielded. As a statement its value is dropped."""

    target: Pattern
    source: Expr
    cond: Expr | None
    body: tuple[Stmt, ...]
    span: Span = span_field()


Expr = (
    Name | Number | String | Bool | Wildcard | ListExpr | MapExpr | BinaryExpr | Negate | CompareExpr | LogicExpr
    | NotExpr | Conditional | CallExpr | IndexExpr | SliceExpr | Attribute | Reduce | Scan | RangeExpr | Lambda
    | ForList
)  # fmt: skip


# --- statements of the schedule layer --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamePattern:
    """`x`, or `_` for an unused value (`name` is then "_")."""

    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ListPattern:
    """`[a, _, c]`: matches a list of exactly that length."""

    items: tuple[NamePattern, ...]
    span: Span = span_field()


Pattern = NamePattern | ListPattern


@dataclass(frozen=True, slots=True)
class Let:
    """`let x = e`, or `let [a, b] = e`."""

    pattern: Pattern
    value: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class DrawStmt:
    """`let x ~ distribution(…)`, pinned by `:= value`."""

    name: NamePattern
    distribution: CallExpr
    pin: Expr | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ExprStmt:
    """A call for its effect on the program; a bare name in a space is a rule without arguments."""

    value: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of an `either`, with the name and the weight in front of it."""

    name: Word | None
    weight: Expr | None
    body: tuple[Stmt, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Either:
    """`either pack: panels(0.7) { … } or rows(0.3) { … }`: a draw of structure. Draw and branches all have names, or none."""

    name: Word | None
    branches: tuple[Branch, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Maybe:
    """`maybe(70) pack { … }`: taken with a probability of 70 %; without a number, of 50 %."""

    name: Word
    chance: Expr | None
    body: tuple[Stmt, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Try:
    """`try { … } otherwise { … }`: the steps of `body`; if one is refused, those of `other` instead, and none of `body`."""

    body: tuple[Stmt, ...]
    other: tuple[Stmt, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class If:
    """`if cond { … } else { … }` over values known at expansion."""

    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Yield:
    """`yield e`: the element that this round adds to the list of the `for` around it."""

    value: Expr
    span: Span = span_field()


Stmt = Let | DrawStmt | ExprStmt | Either | Maybe | Try | If | Yield
