"""Checks modules, spaces, schedules and priors in the scope of their file: parameters, rules, bodies, weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import assert_never

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError, help_note
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import expressions, problems
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.expressions import Binding, Expressions, Scope
from tensorc_dsl.check.kinds import (
    ANY,
    BLOCK,
    BUFFER,
    INSTRUCTION,
    LIST,
    NOBODY,
    NODE,
    PARAM_TYPES,
    Base,
    Kind,
    Listener,
    ListOf,
    ModuleOf,
    Parameter,
    Signature,
    element,
    fits,
    is_variable,
    join_all,
    of_module,
    of_type,
    show,
    usage,
)
from tensorc_dsl.check.problems import where
from tensorc_dsl.check.uses import bound_names
from tensorc_dsl.elaborate.bindings import dimensions
from tensorc_dsl.ir.cases import Box, box_of, common, without
from tensorc_dsl.ir.target import GRAPH
from tensorc_dsl.schedule.trace.distribution import Decision, Weights
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near, near_or_elsewhere, spelling_hints
from tensorc_dsl.syntax.traversal import walk

# Checks the statements of modules and schedules: the names that they bind, their scopes, and unused names.


def given() -> dict[str, Binding]:
    """The names that every body has."""
    return {name: Binding(kind) for name, kind in v.GIVEN.items()}


def _does_something(e: t.Expr) -> bool:
    """Whether a statement may change or refuse the program: it is a loop, or calls more than functions of values."""
    return any(
        isinstance(n, t.ForList)
        or (isinstance(n, t.CallExpr) and isinstance(n.function, t.Name) and n.function.id not in v.VALUES)
        for n in walk(e)
    )


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
        self._trying = 0
        self._idle: list[Diagnostic] = []

    def finish(self) -> list[Diagnostic]:
        """All findings, with a warning for each unused name and value if there is no error: what is wrong may be its use."""
        if any(d.severity is Severity.ERROR for d in self.found):
            return self.found
        return [*self.found, *self._idle, *(b.unused for b in self._made if b.unused is not None)]

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
                elif not self._trying and not _does_something(value):
                    self._idle.append(problems.NO_EFFECT(value.span, text=" ".join(value.span.text.split())))
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
                self._trying += 1  # an attribute that does not exist is refused
                tried = self.run(body, scope)
                self._trying -= 1
                return _after([tried, self.run(other, scope)])
            case t.If(cond=cond, then=then, other=other):
                self.condition(cond, scope)
                return _after([self.run(then, scope), self.run(other, scope)])
            case t.Select(cases=cases):
                for c in cases:
                    self.run(c.body, scope)
                return {}
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
            self.found.extend(expressions.argument_problems(call, name, signature, kinds))
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


# Spaces in spaces: replaces a rule that names a space by the rules of that space, in order.


MOST_RULES = 256
"""The largest number of rules of a space: each is tried on every block, and is copied into each space that names this one."""


def rule_name(rule: t.Expr) -> str:
    """The module or space that a rule names."""
    function = rule.function if isinstance(rule, t.CallExpr) else rule
    return function.id if isinstance(function, t.Name) else ""


class Inclusion:
    """The spaces of a file, with the rules of the spaces that they name put in place.

    `spaces` and `modules` are those that the file can name; a module takes precedence over a space of its name. Spaces of
    other files are complete already. `kind` is the kind of target that a target's name stands for; None for unknown names.
    """

    def __init__(
        self, spaces: Mapping[str, t.SpaceDef], modules: Mapping[str, t.ModuleDef], kind: Callable[[str], str | None]
    ) -> None:
        self._spaces = spaces
        self._modules = modules
        self._kind = kind
        self._circular: set[str] = set()
        self.found: list[Diagnostic] = []

    def whole(self, own: Mapping[str, t.SpaceDef]) -> dict[str, t.SpaceDef]:
        """The file's own spaces with the rules of others. Wrong rules are left out and reported in `found`."""
        graph = {name: [n for n in self._named(s) if n in own] for name, s in own.items()}
        whole = dict(self._spaces)
        for name in self._order(graph):
            whole[name] = self._with(own[name], whole)
        return {name: whole[name] for name in own}

    def _named(self, s: t.SpaceDef) -> Iterator[str]:
        for rule in s.rules:
            if (name := rule_name(rule)) in self._spaces and name not in self._modules:
                yield name

    def _order(self, graph: dict[str, list[str]]) -> list[str]:
        """The spaces, each after those that it names. Cycles are reported and cut."""
        while True:
            try:
                return [*TopologicalSorter(graph).static_order()]
            except CycleError as e:
                circle: list[str] = e.args[1][::-1]
                first = min(circle, key=lambda n: self._spaces[n].name.span.start)
                at = circle.index(first)
                text = " > ".join((*circle[at:-1], *circle[:at], first))
                self.found.append(problems.SPACE_IN_ITSELF(self._spaces[first].name.span, name=first, chain=text))
                graph |= {name: [] for name in circle}
                self._circular.update(circle)

    def _with(self, s: t.SpaceDef, known: Mapping[str, t.SpaceDef]) -> t.SpaceDef:
        rules: dict[Span, t.Expr] = {}
        own = self._kind(s.target)
        for rule in s.rules:
            name = rule_name(rule)
            inner = None if name in self._modules else known.get(name)
            if inner is None:
                rules[rule.span] = rule
                continue
            if name in self._circular and s.name in self._circular:
                continue
            kind = self._kind(inner.target)
            if None not in (own, kind) and kind != own:
                self.found.append(problems.OTHER_KIND(rule.span, name=name, kind=kind, space=s.name, own=own))
            # A rule is identified by its place in the text, through however many spaces it came.
            elif any(r.span in rules for r in inner.rules):
                self.found.append(problems.RULES_TWICE(rule.span, name=name))
            else:
                rules |= {r.span: r for r in inner.rules}
        if len(rules) > MOST_RULES:
            self.found.append(problems.TOO_MANY_RULES(s.name.span, most=MOST_RULES))
            return replace(s, rules=())
        return replace(s, rules=tuple(rules.values()))


def subject_of(m: t.ModuleDef) -> str:
    """The type of the first parameter of a rule, which is tried on each `Block` or `Node`, or the `Program`; else empty."""
    first = m.params[0].type if m.params else None
    return str(first) if str(first) in ("Block", "Node", "Program") else ""


def outer_names(intrinsics: Iterable[str], constants: Mapping[str, t.ConstDef]) -> dict[str, Binding]:
    """The names of a file's instructions and constants in its bodies."""
    found = {name: Binding(INSTRUCTION) for name in intrinsics}
    kinds = BodyChecker({})
    for name, c in constants.items():
        found[name] = Binding(kinds.expr(c.value, {}), None, c.name.span, constant=True)
    return found


_LITERALS = (t.Number, t.String, t.Bool, t.Negate, t.ListExpr, t.MapExpr)


def check_constant(c: t.ConstDef, intrinsics: Iterable[str]) -> list[Diagnostic]:
    """What is wrong with a constant."""
    found = _taken_names(c.name, "constant")
    for name, what in [*((n, "a name of every body") for n in v.GIVEN), *((n, "an instruction") for n in intrinsics)]:
        if c.name == name:
            found.append(problems.TAKEN_NAME(c.name.span, name=name, what=what, item="constant"))
    computed = next((e for e in walk(c.value) if not isinstance(e, _LITERALS)), None)
    if computed is not None:
        return [*found, problems.NOT_CONSTANT(computed.span)]
    checker = BodyChecker({})
    checker.expr(c.value, {})
    return found + checker.found


def _taken_names(name: t.Word, item: str) -> list[Diagnostic]:
    """What is wrong with a name that the language has already."""
    tables = (("a primitive", v.STEPS), ("a function", v.FUNCTIONS), ("a distribution", v.DISTRIBUTIONS))
    return [problems.TAKEN_NAME(name.span, name=name, what=what, item=item) for what, taken in tables if name in taken]


def check_module(
    m: t.ModuleDef,
    modules: Mapping[str, t.ModuleDef],
    outer: dict[str, Binding],
    listener: Listener = NOBODY,
) -> list[Diagnostic]:
    """The findings about a module."""
    checker = BodyChecker(modules, listener, bound_names(m))
    checker.found += [*_taken_names(m.name, "module"), *_wrong_types(m.params)]
    scope = given() | outer
    seen: set[str] = set()
    for n, p in enumerate(m.params):
        wanted = of_type(p.type)
        kind = checker.expr(p.default, scope) if p.default is not None else ANY
        if p.default is not None and isinstance(wanted, ModuleOf) and isinstance(kind, ModuleOf):
            checker.found += expressions.kind_problems(
                p.default, kind, Parameter(p.name, (wanted,)), m.name, of_module(m)
            )
        elif p.default is not None and not fits(kind, (wanted,)):
            wrong = problems.DEFAULT_KIND(p.default.span, name=p.name, wanted=show(wanted), found=show(kind))
            checker.found.append(wrong)
        if p.name in seen:
            checker.found.append(problems.SAME_PARAMETER(p.span, name=p.name))
            continue
        seen.add(p.name)
        checker.shadows(p.name, p.span, scope)
        scope[p.name] = Binding(kind if wanted == ANY else wanted, None, p.name.span)
        checker.can_be_called(p.name, p.name.span, scope[p.name].kind, "parameter")
        if not p.name.startswith("_") and not (n == 0 and subject_of(m)):
            checker.watch(scope[p.name], problems.UNUSED_PARAMETER(p.span, name=p.name))
    if m.when is not None:
        checker.condition(m.when, scope)
    for node in walk(m):
        if isinstance(node, t.Select):
            word = replace(node.span, end=node.span.start + len("select"))
            checker.found.append(problems.SELECT_IN_MODULE(word, name=m.name))
    checker.run(m.body, scope)
    return checker.finish()


def _wrong_types(params: tuple[t.Param, ...]) -> Iterator[Diagnostic]:
    """What is wrong with the types of parameters."""
    types = [x for p in params if p.type is not None for x in walk(p.type) if isinstance(x, t.ParamType)]
    letters = [str(x.name) for x in types]
    for x in types:
        counts = {"Module": None, "list": 1}.get(x.name, 0)
        if is_variable(x.name) and letters.count(x.name) < 2:
            said = f"`{x.name}` stands for one kind in two places or more: leave the type out where any kind will do"
            yield problems.UNKNOWN_TYPE(x.span, notes=(help_note(said),), name=x.name)
        elif x.name not in PARAM_TYPES and not is_variable(x.name):
            yield problems.UNKNOWN_TYPE(x.span, notes=spelling_hints(x.name, tuple(PARAM_TYPES)), name=x.name)
        elif x.parts is not None and counts is not None and counts != len(x.parts):
            yield problems.NO_SUCH_PARTS(x.span, name=x.name)


def check_space(
    s: t.SpaceDef,
    modules: Mapping[str, t.ModuleDef],
    spaces: Mapping[str, t.SpaceDef],
    outer: dict[str, Binding],
    listener: Listener = NOBODY,
) -> Iterator[Diagnostic]:
    """The findings about the rules of a space. `Inclusion` checks the rules that name spaces."""
    checker = BodyChecker(modules, listener)
    for rule in s.rules:
        call = rule if isinstance(rule, t.CallExpr) else t.CallExpr(rule, (), (), rule.span)
        name = rule_name(rule)
        kinds = checker.arguments(call, given() | outer)
        if name not in modules:
            if name not in spaces:
                known = (*modules, *(other for other in spaces if other != s.name))
                yield problems.UNKNOWN_RULE(call.function.span, notes=near(name, known), name=name)
            elif isinstance(rule, t.CallExpr):
                yield problems.NO_SPACE_CALL(rule.span, name=name)
            continue
        module = modules[name]
        listener.called(call, call.function.span, name, module)
        subject = 1 if subject_of(module) else 0
        if subject_of(module) == ("Block" if s.target == GRAPH else "Node"):
            over, wanted = ("blocks", "Node") if s.target == GRAPH else ("nodes of a graph", "Block")
            yield problems.RULE_OF_OTHERS(rule.span, name=name, over=over, space=s.name, target=s.target, wanted=wanted)
        signature = expressions.solved(call, of_module(module), kinds, subject)
        yield from expressions.argument_problems(call, name, signature, kinds, given=subject)
    yield from checker.finish()


def check_schedule(
    s: t.ScheduleDef,
    computes: Mapping[str, t.ComputeDef],
    models: Mapping[str, t.ModelDef],
    modules: Mapping[str, t.ModuleDef],
    blocks: Iterable[str],
    outer: dict[str, Binding],
    listener: Listener = NOBODY,
) -> list[Diagnostic]:
    """The findings about a schedule for a compute with the given blocks, or for a model, whose nodes are its values."""
    compute, model = computes.get(s.compute), models.get(s.compute)
    if compute is not None:
        scope = given() | outer | {p.name: Binding(BUFFER) for p in (*compute.inputs, *compute.outputs)}
        scope |= {name: Binding(BLOCK) for name in blocks}
    elif model is not None:
        scope = {str(name): Binding(NODE) for name in nodes_of(model)} | given() | outer
    else:
        place = s.compute.span
        return [problems.UNKNOWN_COMPUTE(place, notes=near_or_elsewhere(s.compute, computes), name=s.compute)]
    checker = BodyChecker(modules, listener, bound_names(s))
    for name in scope:
        checker.hides_constant(name, s.name.span, {} if scope[name].constant else outer)
    checker.found += _selects(s, None if compute is None else dimensions(compute))
    checker.run(s.body, scope)
    return checker.finish()


def _selects(s: t.ScheduleDef, dims: Collection[str] | None) -> Iterator[Diagnostic]:
    """The findings about the `select`s of a schedule for a compute with these dimensions; a model has none."""
    at_end = {id(n) for n in _last(s.body)}
    for node in walk(s):
        if isinstance(node, t.Select):
            if id(node) not in at_end:
                yield problems.SELECT_NOT_LAST(replace(node.span, end=node.span.start + len("select")))
            yield from _cases(node, s.compute, dims or ())


def _last(body: tuple[t.Stmt, ...]) -> Iterator[t.Select]:
    """The `select` at the end of some statements, and those at the ends of its cases."""
    if body and isinstance(body[-1], t.Select):
        yield body[-1]
        for c in body[-1].cases:
            yield from _last(c.body)


def _cases(s: t.Select, compute: str, dims: Collection[str]) -> Iterator[Diagnostic]:
    for n, name in enumerate(s.names):
        if name in s.names[:n]:
            yield problems.SELECTED_TWICE(name.span, name=name)
        elif name not in dims:
            yield problems.NO_SELECTED(
                name.span, near(name, dims, "select by a size in the shapes of its tensors"), compute=compute, name=name
            )
    left: list[Box] = [((0, None),) * len(s.names)]
    for c in s.cases:
        try:
            box = box_of(c.sizes, s.names, c.span)
        except TschedError as e:
            yield from e.diagnostics
            continue
        if all(common(b, box) is None for b in left):
            yield problems.UNREACHED_CASE(c.sizes[0].span.to(c.sizes[-1].span))
        left = without(left, box)


def nodes_of(model: t.ModelDef) -> list[t.Word]:
    """The names of the nodes of a model: for each call that of its first result."""
    return [call.names[0] for call in model.calls]


def _called(node: t.ModuleDef) -> list[str]:
    calls = (n.function.id for n in walk(node) if isinstance(n, t.CallExpr) and isinstance(n.function, t.Name))
    return list(dict.fromkeys(calls))


def recursion(modules: Mapping[str, t.ModuleDef]) -> Iterator[Diagnostic]:
    """The findings for modules that call themselves, one for each cycle."""
    done: set[str] = set()
    reported: set[str] = set()
    for first in modules:
        # Depth first, with an explicit stack: a chain of modules may be longer than Python's recursion limit.
        path: list[str] = []
        waiting: list[tuple[str, Iterator[str]]] = []

        def enter(name: str, path: list[str] = path, waiting: list[tuple[str, Iterator[str]]] = waiting) -> None:
            path.append(name)
            waiting.append((name, iter([c for c in _called(modules[name]) if c in modules])))

        if first not in done:
            enter(first)
        while waiting:
            name, callees = waiting[-1]
            callee = next(callees, None)
            if callee is None:
                waiting.pop()
                path.pop()
                done.add(name)
            elif callee in path:
                chain = path[path.index(callee) :]
                if not reported.intersection(chain):
                    reported.update(chain)
                    text = " > ".join((*chain, callee))
                    yield problems.RECURSION(modules[callee].name.span, name=callee, chain=text)
            elif callee not in done:
                enter(callee)


# Checks priors: other weights for draws of a space or schedule; and makes spaces and schedules with these.


MOST = 2.0**100
"""Larger weights could add up to infinity."""


def check_prior(p: t.PriorDef, choices: Collection[str]) -> Iterator[Diagnostic]:
    """The findings about a prior; `choices` are the spaces and schedules of its file."""
    if p.of not in choices:
        yield problems.UNKNOWN_CHOICE(p.of.span, notes=near_or_elsewhere(p.of, choices), name=p.of)
    first: dict[str, t.Weighing] = {}
    for w in p.weights:
        if w.draw in first:
            note = where("the first ones", first[w.draw].draw.span)
            yield problems.WEIGHED_TWICE(w.draw.span, notes=(note,), draw=w.draw)
        first.setdefault(w.draw, w)
        yield from _wrong(w)


def with_prior(base: t.SpaceDef | t.ScheduleDef, p: t.PriorDef) -> t.SpaceDef | t.ScheduleDef:
    """The space or schedule that the prior makes of another one, whose own weights stay for the draws that it leaves out."""
    weighed = {w.draw for w in p.weights}
    kept = tuple(w for w in base.prior or () if w.draw not in weighed)
    return replace(base, name=p.name, doc=p.doc, span=p.span, prior=(*kept, *p.weights))


def weights_of(w: t.Weighing) -> Weights:
    """The weights of a draw in a prior without findings."""
    assert isinstance(w.weights, t.MapExpr)
    listed: list[tuple[Decision, float]] = []
    rest = 0.0
    for key, value in w.weights.items:
        assert isinstance(value, t.Number)
        decision = literal_of(key)
        if decision is None:
            rest = float(value.value)
        else:
            listed.append((decision, float(value.value)))
    return Weights(tuple(listed), rest)


def literal_of(e: t.Expr) -> Decision | None:
    """The decision that a literal spells; None for other expressions."""
    match e:
        case t.Number(value=value) | t.Bool(value=value) | t.String(value=value) if value == value:
            return value
        case t.Negate(operand=t.Number(value=value)) if value == value:
            return -value
        case t.ListExpr(items=items):
            ints = tuple(i.value for i in items if isinstance(i, t.Number) and isinstance(i.value, int))
            return ints if len(ints) == len(items) else None
        case _:
            return None


def _wrong(w: t.Weighing) -> Iterator[Diagnostic]:
    if not isinstance(w.weights, t.MapExpr):
        yield problems.NO_WEIGHTS(w.weights.span, draw=w.draw, why="weights are a map")
        return
    seen: set[tuple[str, Decision]] = set()
    rests = 0
    for key, value in w.weights.items:
        decision = literal_of(key)
        if isinstance(key, t.Wildcard):
            rests += 1
        elif decision is None:
            yield problems.NO_WEIGHTS(key.span, draw=w.draw, why=f"{key.span.text} is no value that is written down")
        elif (kind := (type(decision).__name__, decision)) in seen:
            yield problems.NO_WEIGHTS(key.span, draw=w.draw, why=f"{key.span.text} is listed twice")
        else:
            seen.add(kind)
        if not isinstance(value, t.Number) or not value.value < MOST:
            yield problems.NO_WEIGHTS(value.span, draw=w.draw, why="a weight is a finite number from 0")
        elif isinstance(key, t.Wildcard) and not value.value > 0:
            yield problems.NO_WEIGHTS(
                value.span, draw=w.draw, why="the weight of `_` is 0, and nothing may become impossible"
            )
    if rests != 1:
        why = "`_` is listed twice" if rests else "`_` is missing, and nothing may become impossible"
        yield problems.NO_WEIGHTS(w.weights.span, draw=w.draw, why=why)
