"""Checks the statements of modules and schedules: the names that they bind, their scopes, and unused names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.base.diagnostic import Diagnostic, Severity
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import calls, problems
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.expressions import Binding, Expressions, Scope
from tensorc_dsl.check.kinds import ANY, LIST, Base, Kind, ListOf, ModuleOf, element, fits, join_all, show
from tensorc_dsl.check.listener import NOBODY, Listener
from tensorc_dsl.check.signatures import Signature, usage
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.walk import walk


def given() -> dict[str, Binding]:
    """The names that every body has."""
    return {name: Binding(kind) for name, kind in v.GIVEN.items()}


def _after(branches: list[dict[str, Binding]]) -> dict[str, Binding]:
    """The bindings after some branches: the names that all of them bind, and, as unusable, those that some of them bind."""
    out: dict[str, Binding] = {}
    for name in dict.fromkeys(name for b in branches for name in b):
        twins = tuple(b[name] for b in branches if name in b)
        partly = len(twins) < len(branches) or any(twin.partly for twin in twins)
        out[name] = Binding(join_all(twin.kind for twin in twins), None, twins[0].span, twins, partly)
    return out


class BodyChecker(Expressions):
    """Checks one body; `modules` are those that it can call. Findings are added to `found`; `finish` adds warnings."""

    def __init__(
        self, modules: Mapping[str, t.ModuleDef], listener: Listener = NOBODY, binds: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(modules, listener, binds)
        self._made: list[Binding] = []
        self._yields: list[list[Kind]] = []

    def finish(self) -> list[Diagnostic]:
        """All findings, with a warning for each unused name if there is no error: what is wrong may be its use."""
        if any(d.severity is Severity.ERROR for d in self.found):
            return self.found
        return self.found + [b.unused for b in self._made if b.unused is not None]

    def run(self, body: tuple[t.Stmt, ...], scope: Scope) -> dict[str, Binding]:
        """Check the statements in order. Returns the names that they bind."""
        inner, new = dict(scope), dict[str, Binding]()
        for s in body:
            made = self._stmt(s, inner)
            inner |= made
            new |= made
        return new

    def watch(self, binding: Binding, unused: Diagnostic) -> None:
        """Warn of the name unless it is used later."""
        binding.unused = unused
        self._made.append(binding)

    def shadows(self, name: str, span: Span, scope: Scope) -> None:
        """Warn if the name hides one of the scope; hiding a constant is an error."""
        if self.hides_constant(name, span, scope):
            return
        if name in scope and not name.startswith("_") and not scope[name].partly:
            other = scope[name].span
            notes = (problems.where("the other one", other),) if other is not None else ()
            self.found.append(problems.SHADOWED(span, notes=notes, name=name))

    # --- statements --------------------------------------------------------------------------------------------------

    def _stmt(self, s: t.Stmt, scope: Scope) -> dict[str, Binding]:
        match s:
            case t.Let(pattern=pattern, value=value):
                made = self._bind(pattern, self.expr(value, scope), scope)
                if isinstance(pattern, t.NamePattern) and not pattern.name.startswith("_"):
                    called = (
                        value.function.id
                        if isinstance(value, t.CallExpr) and isinstance(value.function, t.Name)
                        else ""
                    )
                    repair = (
                        "write the call alone" if called in (*v.STEPS, *v.COMPOUNDS, *self.modules) else "remove it"
                    )
                    unused = problems.UNUSED_LET(pattern.span, name=pattern.name, repair=repair)
                    self.watch(made[pattern.name], unused)
                return made
            case t.DrawStmt():
                return self._draw(s, scope)
            case t.ExprStmt(value=value):
                kind = self._call(value, scope, True) if isinstance(value, t.CallExpr) else self.expr(value, scope)
                if isinstance(kind, ModuleOf):
                    shape = usage(value.span.text, Signature(kind.params, None, kind.keywords))
                    self.found.append(problems.NOT_APPLIED(value.span, name=value.span.text, usage=shape))
                return {}
            case t.Yield(value=value):
                kind = self.expr(value, scope)
                if not self._yields:
                    self.found.append(problems.LONELY_YIELD(s.span))
                else:
                    self._yields[-1].append(kind)
                return {}
            case t.Either(branches=branches):
                self._name_itself(s.name)
                for b in branches:
                    self._name_itself(b.name)
                    if b.weight is not None:
                        self.number(b.weight, scope)
                return _after([self.run(b.body, scope) for b in branches])
            case t.Maybe(chance=chance, body=body):
                self._name_itself(s.name)
                if chance is not None:
                    self.number(chance, scope)
                return _after([self.run(body, scope), {}])
            case t.Try(body=body, other=other):
                if not any(isinstance(n, t.CallExpr | t.Attribute) for inner in body for n in walk(inner)):
                    word = replace(s.span, end=s.span.start + len("try"))
                    self.found.append(problems.NEVER_REFUSED(word))
                return _after([self.run(body, scope), self.run(other, scope)])
            case t.If(cond=cond, then=then, other=other):
                self.condition(cond, scope)
                return _after([self.run(then, scope), self.run(other, scope)])
            case _:
                assert_never(s)

    def _name_itself(self, name: t.Word | None) -> None:
        """Report the name of a choice, or of a branch, to the listener; it stands for itself."""
        if name is not None:
            self.listener.named(name.span, name, (name.span,), ANY)

    def can_be_called(self, name: str, span: Span, kind: Kind, item: str) -> None:
        """Report a name for a module that calls something else already."""
        if not isinstance(kind, ModuleOf):
            return
        tables = (
            ("a module", self.modules), ("a primitive", {**v.STEPS, **v.COMPOUNDS}), ("a function", v.FUNCTIONS),
            ("a distribution", v.DISTRIBUTIONS),
        )  # fmt: skip
        for what, taken in tables:
            if name in taken:
                self.found.append(problems.TAKEN_NAME(span, name=name, what=what, item=item))

    def _listed(self, kind: Kind, at: t.Pattern | t.Expr, what: str) -> Kind:
        """The kind of the elements of a value that must be a list."""
        if kind == Base.RANGE:
            self.found.append(problems.NO_RANGE_LIST(at.span, what=what))
        elif not fits(kind, (LIST,)):
            self.found.append(problems.NO_LIST(at.span, what=what, found=show(kind)))
        return element(kind) if isinstance(kind, ListOf) else ANY

    def _bind(self, pattern: t.Pattern, kind: Kind, scope: Scope) -> dict[str, Binding]:
        """The bindings of a pattern for a value or its parts."""
        if isinstance(pattern, t.NamePattern):
            if pattern.name == "_":
                return {}
            self.shadows(pattern.name, pattern.span, scope)
            self.can_be_called(pattern.name, pattern.span, kind, "value")
            self.listener.named(pattern.span, pattern.name, (pattern.span,), kind)
            return {pattern.name: Binding(kind, None, pattern.span)}
        part = self._listed(kind, pattern, "only a list has parts")
        out: dict[str, Binding] = {}
        for i in pattern.items:
            if i.name in out:
                self.found.append(problems.SAME_NAMES(i.span, name=i.name))
            elif i.name != "_":
                self.shadows(i.name, i.span, scope)
                self.can_be_called(i.name, i.span, part, "value")
                self.listener.named(i.span, i.name, (i.span,), part)
                out[i.name] = Binding(part, None, i.span)
        return out

    def _draw(self, s: t.DrawStmt, scope: Scope) -> dict[str, Binding]:
        call = s.distribution
        kinds = self.arguments(call, scope)
        if s.pin is not None:
            self.expr(s.pin, scope)
        name = call.function.id if isinstance(call.function, t.Name) else call.function.span.text
        binding = Binding(ANY, None, s.name.span)
        signature = v.DISTRIBUTIONS.get(name)
        if signature is None:
            notes = near(name, v.DISTRIBUTIONS)
            self.found.append(problems.NO_DISTRIBUTION(call.function.span, notes=notes, name=name))
        else:
            self.listener.called(call, call.function.span, name, signature)
            self.found.extend(calls.problems(call, name, signature, kinds))
            binding.kind = signature.result_for([*kinds.args, *kinds.kwargs][:1])
        if s.name.name == "_":
            self.found.append(problems.DISCARDED_DRAW(s.name.span))
            return {}
        self.shadows(s.name.name, s.name.span, scope)
        self.listener.named(s.name.span, s.name.name, (s.name.span,), binding.kind)
        # A pinned draw does not enlarge the search: a trace keeps draws that nothing reads.
        if not s.name.name.startswith("_") and s.pin is None:
            self.watch(binding, problems.UNUSED_DRAW(s.name.span, name=s.name.name))
        return {s.name.name: binding}

    def for_list(self, e: t.ForList, scope: Scope) -> Kind:
        part = self._listed(self.expr(e.source, scope), e.source, "`for` runs over a list")
        inner = {**scope, **self._bind(e.target, part, scope)}
        if e.cond is not None:
            self.condition(e.cond, inner)
        self._yields.append([])
        self.run(e.body, inner)
        return ListOf(join_all(self._yields.pop()))
