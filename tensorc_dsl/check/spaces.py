"""Checks modules, spaces and schedules in the scope of their file: parameters, rules, bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensorc_dsl.base.diagnostic import Diagnostic, help_note
from tensorc_dsl.check import calls, problems
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.bodies import BodyChecker, given
from tensorc_dsl.check.expressions import Binding
from tensorc_dsl.check.included import rule_name
from tensorc_dsl.check.kinds import ANY, BLOCK, BUFFER, INSTRUCTION, PARAM_TYPES, ModuleOf, Parameter, fits, show
from tensorc_dsl.check.listener import NOBODY, Listener
from tensorc_dsl.check.signatures import is_variable, of_module, of_type
from tensorc_dsl.check.uses import bound_names
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near, near_of_few, near_or_elsewhere
from tensorc_dsl.syntax.walk import walk


def subject_of(m: t.ModuleDef) -> str:
    """The type of the first parameter of a rule, which is tried on each `Block`, or on the `Program`; else empty."""
    first = m.params[0].type if m.params else None
    return str(first) if str(first) in ("Block", "Program") else ""


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
            checker.found += calls.kind_problems(p.default, kind, Parameter(p.name, (wanted,)), m.name, of_module(m))
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
            yield problems.UNKNOWN_TYPE(x.span, notes=near_of_few(x.name, tuple(PARAM_TYPES)), name=x.name)
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
        signature = calls.solved(call, of_module(module), kinds, subject)
        yield from calls.problems(call, name, signature, kinds, given=subject)
    yield from checker.finish()


def check_schedule(
    s: t.ScheduleDef,
    computes: Mapping[str, t.ComputeDef],
    modules: Mapping[str, t.ModuleDef],
    blocks: Iterable[str],
    outer: dict[str, Binding],
    listener: Listener = NOBODY,
) -> list[Diagnostic]:
    """The findings about a schedule for a compute with the given blocks."""
    compute = computes.get(s.compute)
    if compute is None:
        place = s.compute.span
        return [problems.UNKNOWN_COMPUTE(place, notes=near_or_elsewhere(s.compute, computes), name=s.compute)]
    scope = given() | outer | {p.name: Binding(BUFFER) for p in (*compute.inputs, *compute.outputs)}
    scope |= {name: Binding(BLOCK) for name in blocks}
    checker = BodyChecker(modules, listener, bound_names(s))
    for name in scope:
        checker.hides_constant(name, s.name.span, {} if scope[name].constant else outer)
    checker.run(s.body, scope)
    return checker.finish()


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
