"""The statements of modules and schedules: are all names bound, all calls possible, all values used?

Kinds are inferred as far as they are obvious; where they are not, only what no kind has is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from tensorc_dsl.check import calls, problems
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.problems import near
from tensorc_dsl.diagnostic import Diagnostic
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.walk import children


@dataclass(slots=True)
class Binding:
    """A name in a body, and the warning to give unless it is used."""

    kind: v.Kind = ""
    unused: Diagnostic | None = None
    twins: tuple[Binding, ...] = ()
    """The same name in the other branches."""

    def use(self) -> v.Kind:
        self.unused = None
        for twin in self.twins:
            twin.use()
        return self.kind


Scope = Mapping[str, Binding]


def module_signature(m: t.ModuleDef) -> v.Signature:
    required = [n for n, p in enumerate(m.params, 1) if p.default is None]
    return v.Signature(tuple(p.name for p in m.params), max(required, default=0))


def given() -> dict[str, Binding]:
    """The names that every body has."""
    return {name: Binding(kind) for name, kind in v.GIVEN.items()}


def _element(kind: v.Kind) -> v.Kind:
    return kind[1:-1] if kind.startswith("[") else ""


_WHAT = {v.BLOCK: "a block", v.LOOP: "a loop", v.BUFFER: "a buffer", v.PROGRAM: "the program", v.TARGET: "the target",
         v.INT: "an int", v.FLOAT: "a float", v.STR: "a string", v.BOOL: "a bool", v.LIST: "a list"}  # fmt: skip


def _common(branches: list[dict[str, Binding]]) -> dict[str, Binding]:
    """What is bound whichever branch is taken."""
    first, *rest = branches
    names = [name for name in first if all(name in other for other in rest)]
    return {name: Binding(twins=tuple(b[name] for b in branches)) for name in names}


class BodyChecker:
    """Checks one body; `modules` are those that it can call. `found` grows; warnings come with `finish`."""

    def __init__(self, modules: Mapping[str, t.ModuleDef]) -> None:
        self.modules = modules
        self.found: list[Diagnostic] = []
        self._made: list[Binding] = []
        self._loops = 0

    def finish(self) -> list[Diagnostic]:
        """All findings, with a warning for each name that nothing used."""
        return self.found + [b.unused for b in self._made if b.unused is not None]

    def run(self, body: tuple[t.Stmt, ...], scope: Scope) -> dict[str, Binding]:
        """Check the statements in order; the names that they bind."""
        inner, new = dict(scope), dict[str, Binding]()
        for s in body:
            made = self._stmt(s, inner)
            inner |= made
            new |= made
        return new

    # --- statements --------------------------------------------------------------------------------------------------

    def _stmt(self, s: t.Stmt, scope: Scope) -> dict[str, Binding]:
        match s:
            case t.Let(pattern=pattern, value=value):
                return self._bind(pattern, self.expr(value, scope), value)
            case t.DrawStmt():
                return self._draw(s, scope)
            case t.ExprStmt(value=value):
                self.expr(value, scope)
                return {}
            case t.Yield(value=value):
                self.expr(value, scope)
                if self._loops == 0:
                    self.found.append(problems.LONELY_YIELD(s.span))
                return {}
            case t.Either(branches=branches):
                for b in branches:
                    if b.weight is not None:
                        self.expr(b.weight, scope)
                return _common([self.run(b.body, scope) for b in branches])
            case t.If(cond=cond, then=then, other=other):
                self.expr(cond, scope)
                return _common([self.run(then, scope), self.run(other, scope)])
            case _:
                assert_never(s)

    def _bind(self, pattern: t.Pattern, kind: v.Kind, value: t.Expr | None) -> dict[str, Binding]:
        """Names for a value, or for what a loop runs over (then `value` is None, and nothing need be used)."""
        if isinstance(pattern, t.ListPattern):
            out: dict[str, Binding] = {}
            for i in pattern.items:
                if i.name in out:
                    self.found.append(problems.SAME_NAMES(i.span, name=i.name))
                if i.name != "_":
                    out[i.name] = Binding(_element(kind))
            return out
        binding = Binding(kind)
        if value is not None and not pattern.name.startswith("_"):
            called = value.function if isinstance(value, t.CallExpr) else None
            changes = isinstance(called, t.Name) and (called.id in PRIMITIVES or called.id in self.modules)
            repair = "write the call alone" if changes else "remove it"
            binding.unused = problems.warning(problems.UNUSED_LET(pattern.span, name=pattern.name, repair=repair))
            self._made.append(binding)
        return {} if pattern.name == "_" else {pattern.name: binding}

    def _draw(self, s: t.DrawStmt, scope: Scope) -> dict[str, Binding]:
        call = s.distribution
        self._arguments(call, scope)
        if s.pin is not None:
            self.expr(s.pin, scope)
        name = call.function.id if isinstance(call.function, t.Name) else call.function.span.text
        binding = Binding()
        if name in v.DISTRIBUTIONS:
            self.found.extend(calls.problems(call, name, v.DISTRIBUTIONS[name]))
            binding.kind = v.DISTRIBUTIONS[name].result
        elif name in v.LATER_DISTRIBUTIONS:
            self.found.append(problems.LATER(call.function.span, name=name))
        else:
            notes = near(name, v.DISTRIBUTIONS)
            self.found.append(problems.NO_DISTRIBUTION(call.function.span, notes=notes, name=name))
        if s.name.name == "_":
            self.found.append(problems.DISCARDED_DRAW(s.name.span))
            return {}
        if not s.name.name.startswith("_"):
            binding.unused = problems.warning(problems.UNUSED_DRAW(s.name.span, name=s.name.name))
            self._made.append(binding)
        return {s.name.name: binding}

    # --- expressions -------------------------------------------------------------------------------------------------

    def expr(self, e: t.Expr, scope: Scope) -> v.Kind:
        """Check an expression; its kind."""
        match e:
            case t.Name(id=name):
                return self._name(e, name, scope)
            case t.CallExpr():
                return self._call(e, scope)
            case t.Attribute(base=base, name=name):
                return self._attribute(e, name, self.expr(base, scope))
            case t.IndexExpr(base=base, indices=indices):
                kind = self.expr(base, scope)
                for i in indices:
                    self.expr(i, scope)
                return v.STR if kind == v.STR else _element(kind)
            case t.ForList():
                return self._for(e, scope)
            case t.Lambda(params=params, results=results):
                inner = {**scope, **{p: Binding(v.INT) for p in params}}
                for n, p in enumerate(params):
                    if p in params[:n]:
                        self.found.append(problems.SAME_NAMES(e.span, name=p))
                for r in results:
                    self.expr(r, inner)
                return ""
            case t.Reduce() | t.Scan() | t.RangeExpr():
                what = {t.Reduce: "a reduction", t.Scan: "a scan", t.RangeExpr: "a range"}[type(e)]
                self.found.append(problems.IN_COMPUTE_ONLY(e.span, what=what))
                return ""
            case t.ListExpr(items=items):
                kinds = {self.expr(i, scope) for i in items}
                return f"[{kinds.pop()}]" if len(kinds) == 1 else v.LIST
            case t.Conditional(cond=cond, then=then, other=other):
                self.expr(cond, scope)
                kinds = {self.expr(then, scope), self.expr(other, scope)}
                return kinds.pop() if len(kinds) == 1 else ""
            case t.BinaryExpr(lhs=lhs, rhs=rhs):
                kinds = {self.expr(lhs, scope), self.expr(rhs, scope)}
                return kinds.pop() if len(kinds) == 1 else ""
            case t.Number(value=value):
                return v.INT if isinstance(value, int) else v.FLOAT
            case t.String():
                return v.STR
            case t.Bool():
                return v.BOOL
            case t.Negate() | t.CompareExpr() | t.LogicExpr() | t.NotExpr() | t.MapExpr() | t.Wildcard():
                for c in children(e):
                    self.expr(c, scope)
                return v.BOOL if isinstance(e, t.CompareExpr | t.LogicExpr | t.NotExpr) else ""
            case _:
                assert_never(e)

    def _name(self, e: t.Name, name: str, scope: Scope) -> v.Kind:
        if name in scope:
            return scope[name].use()
        self.found.append(problems.UNKNOWN_NAME(e.span, notes=near(name, scope), name=name))
        return ""

    def _attribute(self, e: t.Attribute, name: str, kind: v.Kind) -> v.Kind:
        known = v.ATTRIBUTES.get(kind)
        if known is None and not kind:
            known = {n: "" for names in v.ATTRIBUTES.values() for n in names}
        if known is None or name not in known:
            what = _WHAT.get(kind, "a list")
            problem = problems.NO_ATTRIBUTE if kind else problems.UNKNOWN_ATTRIBUTE
            self.found.append(problem(e.span, notes=near(name, known or ()), kind=what, name=name))
            return ""
        return known[name]

    def _for(self, e: t.ForList, scope: Scope) -> v.Kind:
        kind = self.expr(e.source, scope)
        self._loops += 1
        self.run(e.body, {**scope, **self._bind(e.target, _element(kind), None)})
        self._loops -= 1
        return v.LIST

    # --- calls -------------------------------------------------------------------------------------------------------

    def _arguments(self, call: t.CallExpr, scope: Scope) -> None:
        for a in call.args:
            self.expr(a, scope)
        for _, a in call.kwargs:
            self.expr(a, scope)

    def _call(self, call: t.CallExpr, scope: Scope) -> v.Kind:
        if isinstance(call.function, t.Attribute):
            return self._method(call, call.function, scope)
        self._arguments(call, scope)
        if not isinstance(call.function, t.Name):
            self.found.append(problems.NOT_CALLABLE(call.function.span))
            return ""
        name = call.function.id
        if name in PRIMITIVES:
            signature, named = calls.of_primitive(PRIMITIVES[name])
            self.found.extend(calls.problems(call, name, signature, named))
        elif name in v.FUNCTIONS:
            self.found.extend(calls.problems(call, name, v.FUNCTIONS[name]))
            return v.FUNCTIONS[name].result
        elif name in self.modules:
            self.found.extend(calls.problems(call, name, module_signature(self.modules[name])))
        elif name in v.DISTRIBUTIONS or name in v.LATER_DISTRIBUTIONS:
            self.found.append(problems.DRAWN(call.span, name=name))
        else:
            notes = near(name, (*self.modules, *PRIMITIVES, *v.FUNCTIONS))
            self.found.append(problems.UNKNOWN_CALL(call.function.span, notes=notes, name=name))
        return ""

    def _method(self, call: t.CallExpr, function: t.Attribute, scope: Scope) -> v.Kind:
        kind = self.expr(function.base, scope)
        self._arguments(call, scope)
        tables = [v.METHODS[k] for k in v.METHODS if k == kind or not kind or (k == v.LIST and kind.startswith("["))]
        for table in tables:
            if function.name in table:
                self.found.extend(calls.problems(call, function.name, table[function.name]))
                return table[function.name].result
        known = {n for table in tables for n in table}
        self.found.append(problems.NO_METHOD(function.span, notes=near(function.name, known), name=function.name))
        return ""
