"""Builds statements of schedules and modules; see `syntax.build`."""

from __future__ import annotations

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax import problems
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.build import Parts, Seq, items, rule
from tensorc_dsl.syntax.build_expr import ExprBuilder


class StmtBuilder(ExprBuilder):
    """The rules of statements, of patterns and of a `for` in a list."""

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
            raise TschedError(problems.NO_DISTRIBUTION(distribution.span))
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
                raise TschedError(problems.SAME_BRANCH(b.span, name=str(b.name)))
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
    def try_(self, span: Span, parts: Parts) -> t.Try:
        body, other = parts
        return t.Try(body.items, items(other), span)

    @rule
    def otherwise(self, span: Span, parts: Parts) -> Seq[t.Stmt]:
        return parts[0]

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
