"""Items one by one: modules, spaces, schedules, tasks, programs, computes, in the scope of their file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tensorc_dsl.check import calls, problems
from tensorc_dsl.check import compute as compute_layer
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.bodies import Binding, BodyChecker, given, module_signature
from tensorc_dsl.check.compute_bindings import dimensions
from tensorc_dsl.check.compute_problems import COMPUTED_BINDING, UNKNOWN_BINDING
from tensorc_dsl.check.problems import near
from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.ir.parse import program_from_tree
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import name_span, word_span
from tensorc_dsl.syntax.walk import walk


@dataclass(slots=True)
class Names:
    """The items of a file by name, its own and those it uses."""

    computes: dict[str, t.ComputeDef] = field(default_factory=dict[str, t.ComputeDef])
    modules: dict[str, t.ModuleDef] = field(default_factory=dict[str, t.ModuleDef])
    spaces: dict[str, t.SpaceDef] = field(default_factory=dict[str, t.SpaceDef])
    schedules: dict[str, t.ScheduleDef] = field(default_factory=dict[str, t.ScheduleDef])
    tasks: dict[str, t.TaskDef] = field(default_factory=dict[str, t.TaskDef])
    programs: dict[str, t.ProgramDef] = field(default_factory=dict[str, t.ProgramDef])
    broken: set[str] = field(default_factory=set[str])
    """Computes with findings, on which tasks are not tried."""


def check_items(items: Iterable[t.Item], names: Names) -> list[Diagnostic]:
    """Everything that is wrong with the items of a file that has these names."""
    # Computes first: what is wrong with one is not said again of its tasks.
    ordered = sorted(items, key=lambda i: not isinstance(i, t.ComputeDef))
    return [d for item in ordered for d in _check(item, names)]


def _check(item: t.Item, names: Names) -> list[Diagnostic]:
    match item:
        case t.ComputeDef():
            found = compute_layer.check(item)
            if found:
                names.broken.add(item.name)
            return found
        case t.ModuleDef():
            return _module(item, names)
        case t.SpaceDef():
            return list(_space(item, names))
        case t.ScheduleDef():
            return _schedule(item, names)
        case t.TaskDef():
            return list(_task(item, names))
        case t.ProgramDef():
            try:
                program_from_tree(item)
            except TschedError as e:
                return list(e.diagnostics)
            return []
        case t.UseDecl():
            return []


# --- modules, spaces, schedules --------------------------------------------------------------------------------------


def _module(m: t.ModuleDef, names: Names) -> list[Diagnostic]:
    checker = BodyChecker(names.modules)
    place = name_span(m)
    for what, taken in (("a primitive", PRIMITIVES), ("a function", v.FUNCTIONS), ("a distribution", v.DISTRIBUTIONS)):
        if m.name in taken:
            checker.found.append(problems.TAKEN_NAME(place, name=m.name, what=what))
    scope = given()
    seen: set[str] = set()
    for p in m.params:
        if p.type is not None and p.type not in v.PARAM_TYPES:
            checker.found.append(problems.UNKNOWN_TYPE(p.span, notes=near(p.type, v.PARAM_TYPES), name=p.type))
        kind = checker.expr(p.default, scope) if p.default is not None else ""
        if p.name in seen:
            checker.found.append(problems.SAME_PARAMETER(p.span, name=p.name))
        else:
            scope[p.name] = Binding(p.type if p.type in v.PARAM_TYPES else kind)
        seen.add(p.name)
    if m.when is not None:
        checker.expr(m.when, scope)
    checker.run(m.body, scope)
    return checker.finish()


def _called(node: t.ModuleDef) -> Iterator[str]:
    for n in walk(node):
        if isinstance(n, t.CallExpr) and isinstance(n.function, t.Name):
            yield n.function.id


def recursion(modules: Mapping[str, t.ModuleDef]) -> Iterator[Diagnostic]:
    """Modules that reach themselves, each chain once."""
    reported: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> Iterator[Diagnostic]:
        if name in path:
            chain = path[path.index(name) :]
            if not reported.intersection(chain):
                reported.update(chain)
                text = " > ".join((*chain, name))
                yield problems.RECURSION(name_span(modules[name]), name=name, chain=text)
        elif name not in done:
            for callee in dict.fromkeys(_called(modules[name])):
                if callee in modules:
                    yield from visit(callee, (*path, name))
            done.add(name)

    done: set[str] = set()
    for name in modules:
        yield from visit(name, ())


def _space(s: t.SpaceDef, names: Names) -> Iterator[Diagnostic]:
    if s.target not in v.TARGET_KINDS:
        yield problems.UNKNOWN_TARGET(
            word_span(s.span, s.target, " for "), name=s.target, notes=near(s.target, v.TARGET_KINDS)
        )
    checker = BodyChecker(names.modules)
    for rule in s.rules:
        call = rule if isinstance(rule, t.CallExpr) else t.CallExpr(rule, (), (), rule.span)
        name = call.function.id if isinstance(call.function, t.Name) else ""
        for a in (*call.args, *(value for _, value in call.kwargs)):
            checker.expr(a, {"target": Binding(v.TARGET)})
        if name not in names.modules:
            yield problems.UNKNOWN_RULE(call.function.span, notes=near(name, names.modules), name=name)
            continue
        module = names.modules[name]
        # The block or the program that a rule is tried on is its module's first argument.
        subject = 1 if module.params and module.params[0].type in (v.BLOCK, v.PROGRAM) else 0
        yield from calls.problems(call, name, module_signature(module), given=subject)
    yield from checker.finish()


def block_names(c: t.ComputeDef) -> list[str]:
    """The names that the blocks of a compute have or may have: its stages, and the reductions inside expressions."""
    out = [s.name for s in c.stages]
    for s in c.stages:
        reductions = [n for n in walk(s.value) if isinstance(n, t.Reduce) and n is not s.value]
        inner = [f"{n.reducer}_{n.indices[0].name}" for n in reductions]
        for base in inner:
            out += [base, *(f"{base}_{n}" for n in range(1, len(inner) + 1))]
    return out


def _schedule(s: t.ScheduleDef, names: Names) -> list[Diagnostic]:
    compute = names.computes.get(s.compute)
    if compute is None:
        place = word_span(s.span, s.compute, " for ")
        return [problems.UNKNOWN_COMPUTE(place, notes=near(s.compute, names.computes), name=s.compute)]
    scope = given() | {p.name: Binding(v.BUFFER) for p in (*compute.inputs, *compute.outputs)}
    scope |= {name: Binding(v.BLOCK) for name in block_names(compute)}
    checker = BodyChecker(names.modules)
    checker.run(s.body, scope)
    return checker.finish()


# --- tasks -----------------------------------------------------------------------------------------------------------


def task_bindings(task: t.TaskDef) -> dict[str, int | str]:
    """What a task binds: sizes and attributes to numbers, types to their names. Raises TschedError."""
    out: dict[str, int | str] = {}
    found: list[Diagnostic] = []
    seen: set[str] = set()
    for name, value in task.bindings:
        twice = name in seen
        seen.add(name)
        match value:
            case _ if twice:
                found.append(problems.BOUND_TWICE(value.span, name=name))
            case t.Number(value=number):
                out[name] = number  # type: ignore[assignment]
            case t.Negate(operand=t.Number(value=number)):
                out[name] = -number  # type: ignore[assignment]
            case t.Name(id=dtype):
                out[name] = dtype
            case t.RangeExpr():
                found.append(problems.OPEN_SIZE(value.span, name=name))
            case _:
                found.append(problems.NOT_A_SIZE(value.span, name=name))
    if found:
        raise TschedError(*found)
    return out


def _task(task: t.TaskDef, names: Names) -> Iterator[Diagnostic]:
    compute = names.computes.get(task.compute)
    if task.with_ is not None:
        yield from _choice(task, task.with_, names)
    if compute is None:
        notes = near(task.compute, names.computes)
        yield problems.UNKNOWN_COMPUTE(word_span(task.span, task.compute, "="), notes=notes, name=task.compute)
        return
    try:
        bindings = task_bindings(task)
    except TschedError as e:
        yield from e.diagnostics
        return
    known = {*dimensions(compute), *(a.name for a in compute.attributes)}
    computed = {name for name, _ in compute.where}
    wrong = [(name, value) for name, value in task.bindings if name not in known]
    for name, value in wrong:
        if name in computed:
            yield COMPUTED_BINDING(value.span, compute=compute.name, name=name)
        else:
            yield UNKNOWN_BINDING(value.span, notes=near(name, known), compute=compute.name, name=name)
    if not wrong and compute.name not in names.broken:
        try:
            compute_layer.elaborate(compute, bindings, task.name)
        except TschedError as e:
            note = problems.where(f"for task `{task.name}`", name_span(task))
            yield from (Diagnostic(d.code, d.message, d.span, d.label, (*d.notes, note)) for d in e.diagnostics)


def _choice(task: t.TaskDef, name: str, names: Names) -> Iterator[Diagnostic]:
    place = word_span(task.span, name, "with ")
    schedule = names.schedules.get(name)
    if schedule is not None and schedule.compute != task.compute:
        yield problems.OTHER_COMPUTE(place, name=name, compute=schedule.compute, wanted=task.compute)
    elif schedule is None and name not in names.spaces:
        yield problems.UNKNOWN_CHOICE(place, notes=near(name, (*names.schedules, *names.spaces)), name=name)
