"""Builds expressions and statements: one method per rule of `grammar/tsched.lark`.

The parser calls a method when it has recognised the rule of that name, and passes the values of the rule's parts. Signs and
keywords are already removed. A part that is only a list is passed as `Seq`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from tensorc_dsl.diagnostic import Diagnostic, TschedError, help_note
from tensorc_dsl.source import Span
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import MAX_DEPTH
from tensorc_dsl.syntax.words import Token

T = TypeVar("T")


@dataclass(slots=True)
class Seq(Generic[T]):
    """A list without a node of its own."""

    items: tuple[T, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Keyword:
    """`key=value` among the arguments of a call."""

    name: t.Word
    value: t.Expr
    span: Span


def items(seq: Seq[T] | None) -> tuple[T, ...]:
    """The entries of an optional list; none if the list is missing."""
    return () if seq is None else seq.items


def error(code: str, message: str, span: Span, label: str = "", help: str = "") -> TschedError:
    return TschedError(Diagnostic(code, message, span, label, (help_note(help),) if help else ()))


def too_deep(span: Span) -> TschedError:
    """The error for brackets, or other constructs, that are nested too deeply."""
    repair = "name parts of it with `let`, or write it as several statements"
    return error("E0107", f"this is nested more than {MAX_DEPTH} levels deep", span, help=repair)


def _require_shallow(lhs: t.Expr, span: Span) -> None:
    """Raises TschedError as soon as a chain of operators is too deep, before the rest of it is read."""
    for _ in range(MAX_DEPTH):
        if not isinstance(lhs, t.BinaryExpr | t.LogicExpr):
            return
        lhs = lhs.lhs
    raise too_deep(span)


def no_subscripts(span: Span) -> TschedError:
    """The error for `x[]`: a single value is written by its name alone."""
    name = span.text.partition("[")[0].strip()
    return error(
        "E0116", "there is nothing in these brackets", span, help=f"a single value is its name alone: `{name}`"
    )


def _wrong_rest(message: str, span: Span) -> TschedError:
    """`...` is not once on both sides of an index map."""
    repair = "it stands once on the left, and once on the right for the same indices: `(..., k, j) -> (..., j, k)`"
    return error("E0118", message, span, help=repair)


Parts = list[Any]


def rule(method: Callable[[Any, Span, Parts], T]) -> Callable[[Any, Span, Parts], T]:
    """Marks a method that the parser calls for the rule of its name, with the rule's span and its parts without signs."""
    return method


_new = str.__new__
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(u\{([0-9a-fA-F]{1,6})\}|.)")


class ExprBuilder:
    """The rules of expressions, and of statements, since an expression may contain statements."""

    def text(self, token: Token, span: Span) -> str:
        """The value of the string literal at the span."""

        def one(m: re.Match[str]) -> str:
            if m[2] is not None:
                code = int(m[2], 16)
                if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:  # lone surrogates are no characters
                    return chr(code)
            elif m[1] in _ESCAPES:
                return _ESCAPES[m[1]]
            place = Span(span.source, token.start_pos + 1 + m.start(), token.start_pos + 1 + m.end())
            raise error("E0105", f"`{m[0]}` is no character", place, help='write \\" \\\\ \\n \\t \\r or \\u{HEX}')

        return _ESCAPE.sub(one, str(token)[1:-1])

    # --- words and literals ---

    @rule
    def name(self, span: Span, parts: Parts) -> t.Word:
        word = _new(t.Word, parts[0])  # the same as `Word`, which is too slow for the most common node
        word.span = span
        return word

    @rule
    def name_expr(self, span: Span, parts: Parts) -> t.Name:
        return t.Name(str(parts[0]), span)

    @rule
    def integer(self, span: Span, parts: Parts) -> t.Number:
        digits = str(parts[0]).lstrip("0") or "0"
        if len(digits) > t.MAX_BITS or int(digits).bit_length() > t.MAX_BITS:
            raise error("E0106", f"this number needs more than {t.MAX_BITS} bits", span)
        return t.Number(int(digits), span)

    @rule
    def decimal(self, span: Span, parts: Parts) -> t.Number:
        value = float(parts[0])
        if math.isinf(value):
            raise error("E0106", "this number is larger than any f64", span, help="write `inf` for infinity")
        return t.Number(value, span)

    @rule
    def infinity(self, span: Span, parts: Parts) -> t.Number:
        return t.Number(math.inf, span)

    @rule
    def not_a_number(self, span: Span, parts: Parts) -> t.Number:
        return t.Number(math.nan, span)

    @rule
    def string(self, span: Span, parts: Parts) -> t.String:
        return t.String(self.text(parts[0], span), span)

    @rule
    def true(self, span: Span, parts: Parts) -> t.Bool:
        return t.Bool(True, span)

    @rule
    def false(self, span: Span, parts: Parts) -> t.Bool:
        return t.Bool(False, span)

    @rule
    def wildcard(self, span: Span, parts: Parts) -> t.Wildcard:
        return t.Wildcard(span)

    @rule
    def list(self, span: Span, parts: Parts) -> t.ListExpr:
        return t.ListExpr(tuple(parts), span)

    @rule
    def entry(self, span: Span, parts: Parts) -> Seq[t.Expr]:
        return Seq(tuple(parts), span)

    @rule
    def map(self, span: Span, parts: Parts) -> t.MapExpr:
        return t.MapExpr(tuple((e.items[0], e.items[1]) for e in parts), span)

    # --- operators ---

    @rule
    def binary(self, span: Span, parts: Parts) -> t.BinaryExpr:
        lhs, op, rhs = parts
        _require_shallow(lhs, span)
        return t.BinaryExpr(cast(Any, str(op)), lhs, rhs, span)

    @rule
    def logic(self, span: Span, parts: Parts) -> t.LogicExpr:
        lhs, op, rhs = parts
        _require_shallow(lhs, span)
        return t.LogicExpr(cast(Any, str(op)), lhs, rhs, span)

    @rule
    def compare(self, span: Span, parts: Parts) -> t.CompareExpr:
        ops = cast(Any, tuple(map(str, parts[1::2])))
        return t.CompareExpr(ops, tuple(parts[0::2]), span)

    @rule
    def negate(self, span: Span, parts: Parts) -> t.Negate:
        return t.Negate(parts[1], span)

    @rule
    def not_expr(self, span: Span, parts: Parts) -> t.NotExpr:
        return t.NotExpr(parts[0], span)

    @rule
    def conditional(self, span: Span, parts: Parts) -> t.Conditional:
        then, cond, other = parts
        return t.Conditional(cond, then, other, span)

    @rule
    def range(self, span: Span, parts: Parts) -> t.RangeExpr:
        return t.RangeExpr(parts[0], parts[1], (), span)

    @rule
    def reduce(self, span: Span, parts: Parts) -> t.Reduce:
        reducer, indices, body = parts
        return t.Reduce(
            t.Word(reducer, Span(span.source, span.start, span.start + len(reducer))), indices.items, body, span
        )

    @rule
    def reduce_by(self, span: Span, parts: Parts) -> t.Reduce:
        reducer, indices, body = parts
        return t.Reduce(reducer, indices.items, body, span)

    @rule
    def scan(self, span: Span, parts: Parts) -> t.Scan:
        return t.Scan(parts[0], parts[1], parts[2], span)

    @rule
    def index_specs(self, span: Span, parts: Parts) -> Seq[t.IndexSpec]:
        return Seq(tuple(parts), span)

    @rule
    def index_spec(self, span: Span, parts: Parts) -> t.IndexSpec:
        return t.IndexSpec(parts[0], parts[1] if len(parts) > 1 else None, span)

    # --- calls, subscripts, parentheses ---

    @rule
    def keyword(self, span: Span, parts: Parts) -> Keyword:
        return Keyword(parts[0], parts[1], span)

    @rule
    def arguments(self, span: Span, parts: Parts) -> Seq[t.Expr | Keyword]:
        return Seq(tuple(parts), span)

    @rule
    def call(self, span: Span, parts: Parts) -> t.CallExpr:
        function, arguments = parts
        args: Parts = []
        kwargs: Parts = []
        for a in items(arguments):
            if isinstance(a, Keyword):
                kwargs.append((a.name, a.value))
            elif kwargs:
                raise error(
                    "E0108", "an argument without a name follows one with a name", a.span,
                    help="name it too, or put it in front of the others",
                )  # fmt: skip
            else:
                args.append(a)
        return t.CallExpr(function, tuple(args), tuple(kwargs), span)

    @rule
    def index(self, span: Span, parts: Parts) -> t.IndexExpr:
        if len(parts) == 1:
            raise no_subscripts(span)
        return t.IndexExpr(parts[0], tuple(parts[1:]), span)

    @rule
    def slice(self, span: Span, parts: Parts) -> t.SliceExpr:
        base, low, high = parts
        return t.SliceExpr(base, low, high, span)

    @rule
    def stepped(self, span: Span, parts: Parts) -> t.SliceExpr:
        raise error(
            "E0117", "a slice has a start and an end, and no step", span,
            help="`reversed(…)` turns a list around; `for` over a `range` picks what you say",
        )  # fmt: skip

    @rule
    def attribute(self, span: Span, parts: Parts) -> t.Attribute:
        return t.Attribute(parts[0], parts[1], span)

    @rule
    def rest(self, span: Span, parts: Parts) -> t.Rest:
        return t.Rest(span)

    @rule
    def parens(self, span: Span, parts: Parts) -> Seq[t.Expr | t.Rest]:
        return Seq(tuple(parts), span)

    @rule
    def paren(self, span: Span, parts: Parts) -> t.Expr:
        inner = parts[0].items
        if len(inner) != 1 or isinstance(inner[0], t.Rest):
            raise error(
                "E0109", "parentheses around several values are only the parameters of an index map", span,
                "no `->` follows", "write `[a, b]` for a list, `(i, j) -> (j, i)` for an index map",
            )  # fmt: skip
        return inner[0]

    @rule
    def lambda_(self, span: Span, parts: Parts) -> t.Lambda:
        sides: list[Seq[t.Expr | t.Rest]] = parts
        rests = [[p for p in side.items if isinstance(p, t.Rest)] for side in sides]
        for side, found, other in zip(sides, rests, reversed(rests), strict=True):
            if len(found) > 1:
                raise _wrong_rest("`...` stands twice on one side of an index map", found[1].span)
            if other and not found:
                raise _wrong_rest("`...` is missing on this side of the index map", side.span)
        params: list[t.Word | t.Rest] = []
        for p in sides[0].items:
            match p:
                case t.Rest():
                    params.append(p)
                case t.Name(id=name):
                    params.append(t.Word(name, p.span))
                case _:
                    raise error("E0113", "a parameter of an index map is a name", p.span, help="write `(i, j) -> (…)`")
        return t.Lambda(tuple(params), sides[1].items, span)

    # --- statements ---

    @rule
    def body(self, span: Span, parts: Parts) -> Seq[t.Stmt]:
        return Seq(tuple(parts), span)

    @rule
    def for_list(self, span: Span, parts: Parts) -> t.ForList:
        target, source, *cond, body = parts
        return t.ForList(target, source, cond[0] if cond else None, body.items, span)

    @rule
    def filter(self, span: Span, parts: Parts) -> t.Expr:
        return parts[0]

    @rule
    def name_pattern(self, span: Span, parts: Parts) -> t.NamePattern:
        return t.NamePattern(str(parts[0]), span)

    @rule
    def list_pattern(self, span: Span, parts: Parts) -> t.ListPattern:
        return t.ListPattern(tuple(parts), span)

    @rule
    def let(self, span: Span, parts: Parts) -> t.Let:
        return t.Let(parts[0], parts[1], span)

    @rule
    def pin(self, span: Span, parts: Parts) -> t.Expr:
        return parts[0]

    @rule
    def draw(self, span: Span, parts: Parts) -> t.DrawStmt:
        name, distribution, pin = parts
        if not isinstance(distribution, t.CallExpr):
            raise error(
                "E0110", "what stands after `~` is not a distribution", distribution.span,
                help="write `let x ~ sample_categorical([…])`, or `let x = …` for a value",
            )  # fmt: skip
        return t.DrawStmt(name, distribution, pin, span)

    @rule
    def weight(self, span: Span, parts: Parts) -> t.Expr:
        return parts[0]

    @rule
    def either(self, span: Span, parts: Parts) -> t.Either:
        arms = [p for p in parts if not isinstance(p, str)]
        pairs = zip(arms[0::2], arms[1::2], strict=True)
        branches = (t.Branch(None, w, b.items, w.span.to(b.span) if w else b.span) for w, b in pairs)
        return t.Either(None, tuple(branches), span)

    @rule
    def either_of(self, span: Span, parts: Parts) -> t.Either:
        name, *rest = parts
        branches = tuple(b for b in rest if isinstance(b, t.Branch))
        for n, b in enumerate(branches):
            if b.name in [other.name for other in branches[:n]]:
                raise error(
                    "E0119", f"`{b.name}` is the name of another branch too", b.span, "the second one",
                    "a decision is the name of a branch: give each a name of its own",
                )  # fmt: skip
        return t.Either(name, branches, span)

    @rule
    def branch(self, span: Span, parts: Parts) -> t.Branch:
        name, weight, body = parts
        return t.Branch(name, weight, body.items, span)

    @rule
    def maybe(self, span: Span, parts: Parts) -> t.Maybe:
        chance, name, body = parts
        return t.Maybe(name, chance, body.items, span)

    @rule
    def if_(self, span: Span, parts: Parts) -> t.If:
        cond, then, other = parts
        return t.If(cond, then.items, items(other), span)

    @rule
    def else_(self, span: Span, parts: Parts) -> Seq[t.Stmt]:
        inner = parts[0]
        return Seq((inner,), span) if isinstance(inner, t.If) else Seq(inner.items, span)

    @rule
    def yield_(self, span: Span, parts: Parts) -> t.Yield:
        return t.Yield(parts[0], span)

    @rule
    def action(self, span: Span, parts: Parts) -> t.ExprStmt:
        return t.ExprStmt(parts[0], span)
