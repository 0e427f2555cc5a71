"""Builds expressions; see `syntax.build`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, cast

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax import problems
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.build import Parts, Seq, items, rule
from tensorc_dsl.syntax.words import Token


@dataclass(frozen=True, slots=True)
class Keyword:
    """`key=value` among the arguments of a call."""

    name: t.Word
    value: t.Expr
    span: Span


def no_subscripts(span: Span) -> Diagnostic:
    """The finding for `x[]`: a single value is written by its name alone."""
    return problems.NO_SUBSCRIPTS(span, name=span.text.partition("[")[0].strip())


_new = str.__new__
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(u\{([0-9a-fA-F]{1,6})\}|.)")


class ExprBuilder:
    """The rules of words, literals, operators, calls and index maps."""

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
            raise TschedError(problems.NO_ESCAPE(place, escape=m[0]))

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
            raise TschedError(problems.TOO_MANY_BITS(span, most=t.MAX_BITS))
        return t.Number(int(digits), span)

    @rule
    def decimal(self, span: Span, parts: Parts) -> t.Number:
        value = float(parts[0])
        if math.isinf(value):
            raise TschedError(problems.TOO_LARGE(span))
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
        return t.BinaryExpr(cast(Any, str(op)), lhs, rhs, span)

    @rule
    def logic(self, span: Span, parts: Parts) -> t.LogicExpr:
        lhs, op, rhs = parts
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
                raise TschedError(problems.NAMELESS_ARGUMENT(a.span))
            else:
                args.append(a)
        return t.CallExpr(function, tuple(args), tuple(kwargs), span)

    @rule
    def index(self, span: Span, parts: Parts) -> t.IndexExpr:
        if len(parts) == 1:
            raise TschedError(no_subscripts(span))
        return t.IndexExpr(parts[0], tuple(parts[1:]), span)

    @rule
    def slice(self, span: Span, parts: Parts) -> t.SliceExpr:
        base, low, high = parts
        return t.SliceExpr(base, low, high, span)

    @rule
    def stepped(self, span: Span, parts: Parts) -> t.SliceExpr:
        raise TschedError(problems.STEPPED(span))

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
            raise TschedError(problems.SEVERAL_VALUES(span))
        return inner[0]

    @rule
    def lambda_(self, span: Span, parts: Parts) -> t.Lambda:
        sides: list[Seq[t.Expr | t.Rest]] = parts
        rests = [[p for p in side.items if isinstance(p, t.Rest)] for side in sides]
        for side, found, other in zip(sides, rests, reversed(rests), strict=True):
            if len(found) > 1:
                raise TschedError(problems.REST_TWICE(found[1].span))
            if other and not found:
                raise TschedError(problems.REST_MISSING(side.span))
        params: list[t.Word | t.Rest] = []
        for p in sides[0].items:
            match p:
                case t.Rest():
                    params.append(p)
                case t.Name(id=name):
                    params.append(t.Word(name, p.span))
                case _:
                    raise TschedError(problems.NO_PARAMETER(p.span))
        return t.Lambda(tuple(params), sides[1].items, span)
