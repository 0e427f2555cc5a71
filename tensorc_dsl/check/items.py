"""Checks items one by one in the scope of their file: modules, spaces, schedules, tasks, programs, computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, help_note
from tensorc_dsl.base.resources import stdlib_digests
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check import problems
from tensorc_dsl.check.expressions import Binding
from tensorc_dsl.check.models import ModelPlan, check_model
from tensorc_dsl.check.spaces import check_constant, check_module, check_prior, check_schedule, check_space, outer_names
from tensorc_dsl.elaborate import compute as compute_layer
from tensorc_dsl.elaborate.bindings import Bound, OpenRange, dimensions, wrong_error
from tensorc_dsl.elaborate.calls import block_names
from tensorc_dsl.elaborate.names import Library
from tensorc_dsl.elaborate.problems import COMPUTED_BINDING, UNKNOWN_BINDING, UNKNOWN_NAME
from tensorc_dsl.elaborate.user_reducers import check_reducer
from tensorc_dsl.ir.cases import lacking, occurring, representatives
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.intrinsics import intrinsic_from_tree
from tensorc_dsl.ir.parse import program_from_tree
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import APPROX, Block, For, Intrinsic, LoopKind, Program
from tensorc_dsl.ir.program import walk as program_walk
from tensorc_dsl.ir.target import GRAPH, Target, has_spaces, is_kind, kind_of, kinds, own_kinds
from tensorc_dsl.proof.sets.accesses import accesses
from tensorc_dsl.proof.sets.dependence import races
from tensorc_dsl.proof.sets.safety import Outside, check_access
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import listed, near, near_or_elsewhere
from tensorc_dsl.syntax.traversal import walk

# Checks programs that are written out: beside their form, that loops which run at once carry no dependence, and that no
# block leaves a buffer or the extent of an iterator.


def check_program(item: t.ProgramDef, instructions: tuple[Intrinsic, ...]) -> list[Diagnostic]:
    """All findings about a program that is written out."""
    try:
        program = program_from_tree(item, instructions)
    except TschedError as e:
        return list(e.diagnostics)
    places = dict(_places(item.body))
    found = (*_races(program), *_leaving(program))
    return [replace(d, span=places.get(name, item.name.span)) for name, d in found]


def _places(body: tuple[t.ProgramStmt, ...]) -> Iterator[tuple[str, Span]]:
    """The place of each loop and block by its name, the last first: a loop with the name of one before it is renamed."""
    for s in reversed(body):
        if isinstance(s, t.LoopStmt):
            yield from _places(s.body)
            yield from ((h.name, h.span) for h in s.loops)
        else:
            yield s.name, s.name.span


def _races(program: Program) -> Iterator[tuple[str, Diagnostic]]:
    for loop, dependence in races(program):
        written = f'bound("{loop.axis}") for' if loop.kind is LoopKind.BOUND else f"{loop.kind} for"
        yield loop.var, problems.AT_ONCE(None, kind=loop.kind, loop=loop.var, why=dependence, written=written)


def _leaving(program: Program) -> Iterator[tuple[str, Diagnostic]]:
    """For each block the first place at which it leaves a buffer or the extent of an iterator, if one is known."""
    for around, b in program_walk(program.body):
        if isinstance(b, Block) and (found := _leaves(program, around, b)) is not None:
            yield b.name, found


def _leaves(program: Program, around: tuple[For, ...], b: Block) -> Diagnostic | None:
    extents = {x.var: x.extent for x in around}
    for it in b.iters:
        match check_access(extents, b.where, (it.binding,), (it.extent,), program.dims):
            case Outside(value=value, at=at):
                return problems.ITERATOR_LEAVES(
                    None, block=b.name, name=it.name, value=value, extent=format_expr(it.extent), at=_at(at)
                )
            case _:
                pass
    shapes: dict[str, tuple[Expr, ...]] = {x.name: x.shape for x in (*program.params, *program.buffers)}
    for x in accesses(around, (b,), frozenset(shapes)):
        match check_access(extents, x.guard, x.indices, shapes[x.buffer], program.dims):
            case Outside(position=position, value=value, extent=extent, at=at):
                return problems.BLOCK_LEAVES(
                    None, block=b.name, does="stores to" if x.is_write else "reads", buffer=x.buffer,
                    position=position + 1, value=value, extent=extent, at=_at(at),
                )  # fmt: skip
            case _:
                pass
    return None


def _at(values: tuple[tuple[str, int], ...]) -> str:
    return f" at {', '.join(f'{n} = {v}' for n, v in values)}" if values else ""


# Turns `target` items into `Target` values, which spaces, code generators and records use.


FACTS = tuple(f.name for f in fields(Target) if f.name not in ("kind", "device"))
"""The facts that a target item may state; other facts are those of a plain machine, wherever the file is read."""

_MOST = 1 << 48


def target_of(item: t.TargetDef) -> Target:
    """The target that an item describes. Raises TschedError with all findings."""
    found: list[Diagnostic] = []
    if not is_kind(item.kind):
        found.append(problems.UNKNOWN_TARGET(item.kind.span, notes=near(item.kind, kinds()), name=item.kind))
    facts: dict[str, Any] = {}
    for name, value in item.facts:
        if name not in FACTS:
            found.append(problems.NO_FACT(value.span, notes=near(name, FACTS), name=name))
        elif name in facts:
            found.append(problems.BOUND_TWICE(value.span, name=name))
        else:
            known = _fact(name, value)
            if isinstance(known, Diagnostic):
                found.append(known)
            facts[name] = 0 if isinstance(known, Diagnostic) else known
    missing = [f for f in kind_of(str(item.kind)).facts if f not in facts]
    if missing and not found:
        found.append(problems.MISSING_FACTS(item.kind.span, name=item.name, facts=listed(missing)))
    if found:
        raise TschedError(*found)
    return replace(Target(kind=str(item.kind)), **facts)


def _fact(name: str, value: t.Expr) -> int | str | Diagnostic:
    """The value of a fact, or the finding about it."""
    match name, value:
        case "cpu", t.String(value=text):
            return text
        case "cpu", _:
            return problems.WRONG_FACT(value.span, name=name, wanted='a string, LLVM\'s name: "znver4"')
        case "triple", t.String(value=text):
            return text
        case "triple", _:
            return problems.WRONG_FACT(
                value.span, name=name, wanted='a string, LLVM\'s name: "aarch64-unknown-linux-gnu"'
            )
        case "features", t.ListExpr(items=items) if all(isinstance(i, t.String) for i in items):
            return ",".join(sorted({f"+{i.value}" for i in items if isinstance(i, t.String)}))
        case "features", _:
            return problems.WRONG_FACT(value.span, name=name, wanted='a list of strings: ["avx2", "fma"]')
        case "vector_bits", t.Number(value=int() as bits) if 64 <= bits <= 8192 and bits & (bits - 1) == 0:
            return bits
        case "vector_bits", _:
            return problems.WRONG_FACT(value.span, name=name, wanted="a power of two from 64 to 8192")
        case _, t.Number(value=int() as number) if (name == "shared_memory" or number > 0) and number < _MOST:
            return number
        case _:
            return problems.WRONG_FACT(value.span, name=name, wanted="a positive int")


def check_target(item: t.TargetDef) -> tuple[Diagnostic, ...]:
    """The findings about a target item."""
    found: list[Diagnostic] = []
    # Kinds of other packages are allowed: the meaning of a file must not depend on what is installed.
    if item.name in (*own_kinds(), GRAPH, "native"):
        found.append(problems.TAKEN_TARGET(item.name.span, name=item.name))
    try:
        target_of(item)
    except TschedError as e:
        found += e.diagnostics
    return tuple(found)


def check_target_name(space: t.SpaceDef, targets: Iterable[str]) -> tuple[Diagnostic, ...]:
    """The finding for a space whose target is neither a kind of target nor one that the file describes."""
    described = tuple(targets)
    if space.target in described or has_spaces(space.target):
        return ()
    place = space.target.span
    return (problems.UNKNOWN_TARGET(place, notes=near(space.target, (*kinds(), GRAPH, *described)), name=space.target),)


# Which texts of the standard library need no check, since they are those in which nothing was found.
#
# Half of the time in which files of the library are loaded went into their check, which finds nothing. Each process paid
# for it, and again for each sequence of uses. `make reference` writes the digests of files that it has checked, and
# `tests/stdlib` checks all. A file with another text is checked as any other.


def is_checked(source: Source) -> bool:
    """Whether it is a file of the library whose text has no finding, as long as what it uses has none."""
    return stdlib_digests().get(source.name) == digest(source)


def digest(source: Source) -> str:
    """The SHA-256 of its text."""
    return sha256(source.text.encode()).hexdigest()


@dataclass(slots=True)
class Instructions:
    """The instructions that the items of several files define. Each item is read once.

    In a file of the library whose text was checked, an item that is only used is read, and its layouts and lowerings are
    not compared with its operands again: for all instructions of a GPU that takes seconds.
    """

    _read: dict[Span, Intrinsic | tuple[Diagnostic, ...]] = field(
        default_factory=dict[Span, Intrinsic | tuple[Diagnostic, ...]]
    )
    """By the place of the item: the instruction, or its findings."""
    _used: dict[Span, Intrinsic] = field(default_factory=dict[Span, Intrinsic])
    """Those of items that are known to be right."""

    def read(self, item: t.IntrinsicDef, right: bool = False) -> Intrinsic | tuple[Diagnostic, ...]:
        """The instruction, or its findings; of an item that is known to be `right` the instruction."""
        if right and item.span in self._used:
            return self._used[item.span]
        if item.span not in self._read:
            if right:
                self._used[item.span] = intrinsic_from_tree(item, right=True)
                return self._used[item.span]
            try:
                self._read[item.span] = intrinsic_from_tree(item)
            except TschedError as e:
                self._read[item.span] = e.diagnostics
        return self._read[item.span]

    def copy(self) -> Instructions:
        return Instructions(dict(self._read), dict(self._used))

    def of(self, items: Iterable[t.IntrinsicDef]) -> tuple[Intrinsic, ...]:
        """The instructions of the items, without those that have findings."""
        known: dict[str, bool] = {}
        found: list[Intrinsic] = []
        for item in items:
            source = item.span.source
            if source.name not in known:
                known[source.name] = is_checked(source)
            if isinstance(i := self.read(item, known[source.name]), Intrinsic):
                found.append(i)
        return tuple(found)


@dataclass(slots=True)
class Names:
    """The items of a file by name: its own and those that it uses."""

    computes: dict[str, t.ComputeDef] = field(default_factory=dict[str, t.ComputeDef])
    modules: dict[str, t.ModuleDef] = field(default_factory=dict[str, t.ModuleDef])
    spaces: dict[str, t.SpaceDef] = field(default_factory=dict[str, t.SpaceDef])
    schedules: dict[str, t.ScheduleDef] = field(default_factory=dict[str, t.ScheduleDef])
    priors: dict[str, t.PriorDef] = field(default_factory=dict[str, t.PriorDef])
    tasks: dict[str, t.TaskDef] = field(default_factory=dict[str, t.TaskDef])
    models: dict[str, t.ModelDef] = field(default_factory=dict[str, t.ModelDef])
    programs: dict[str, t.ProgramDef] = field(default_factory=dict[str, t.ProgramDef])
    reducers: dict[str, t.ReducerDef] = field(default_factory=dict[str, t.ReducerDef])
    targets: dict[str, t.TargetDef] = field(default_factory=dict[str, t.TargetDef])
    intrinsics: dict[str, t.IntrinsicDef] = field(default_factory=dict[str, t.IntrinsicDef])
    constants: dict[str, t.ConstDef] = field(default_factory=dict[str, t.ConstDef])
    library: Library = field(default_factory=Library)
    """The computes and reducers of all files."""
    instructions: Instructions = field(default_factory=Instructions)
    """Those that the intrinsics of all files define."""
    broken: set[str] = field(default_factory=set[str])
    """Computes with findings; their tasks are not checked."""
    elaborated: dict[str, Program] = field(default_factory=dict[str, Program])
    """The programs of the tasks without findings."""
    plans: dict[str, ModelPlan] = field(default_factory=dict[str, ModelPlan])
    """What the models without findings do."""


class Memory:
    """What earlier checks of a file found: nothing. `remembered` has one that remembers."""

    def begin(self, items: Iterable[t.Item], names: Names) -> None:
        """A check of these items begins, in which names mean this."""

    def findings(self, item: t.Item, names: Names, check: Callable[[], list[Diagnostic]]) -> list[Diagnostic]:
        """The findings about an item, those that `check` has or would have; `names` then has what it adds to them."""
        return check()


FORGETFUL = Memory()


def check_items(items: Iterable[t.Item], names: Names, memory: Memory = FORGETFUL) -> list[Diagnostic]:
    """All findings about the items of a file with these names."""
    # Computes first: an error in a compute is not reported again for its tasks.
    ordered = sorted(items, key=lambda i: not isinstance(i, t.ComputeDef))
    outer = outer_names(names.intrinsics, names.constants)
    memory.begin(ordered, names)
    return [d for item in ordered for d in memory.findings(item, names, lambda item=item: _check(item, names, outer))]


def _check(item: t.Item, names: Names, outer: dict[str, Binding]) -> list[Diagnostic]:
    match item:
        case t.ComputeDef():
            found = [_of_another_layer(d, names) for d in compute_layer.check(item, names.library)]
            if found:
                names.broken.add(item.name)
            return found
        case t.ModuleDef():
            return [_of_another_layer(d, names) for d in check_module(item, names.modules, outer)]
        case t.SpaceDef():
            return [
                *check_target_name(item, names.targets),
                *check_space(item, names.modules, names.spaces, outer),
            ]
        case t.ScheduleDef():
            blocks = blocks_of(item, names.computes, names.library)
            found = check_schedule(item, names.computes, names.models, names.modules, blocks, outer)
            return [_of_another_layer(d, names) for d in found]
        case t.PriorDef():
            return list(check_prior(item, (*names.spaces, *names.schedules)))
        case t.TaskDef():
            return list(_task(item, names))
        case t.ModelDef():
            return check_model(item, names.computes, names.library, names.broken, names.plans)
        case t.ProgramDef():
            return check_program(item, names.instructions.of(names.intrinsics.values()))
        case t.TargetDef():
            return list(check_target(item))
        case t.ConstDef():
            return check_constant(item, names.intrinsics)
        case t.ReducerDef():
            return check_reducer(item)
        case t.IntrinsicDef():
            found = names.instructions.read(item)
            return [] if isinstance(found, Intrinsic) else list(found)
        case t.UseDecl():
            return []


def _of_another_layer(d: Diagnostic, names: Names) -> Diagnostic:
    """A finding about an unknown name, with what the file calls by that name elsewhere in place of a similar name."""
    if d.span is None:
        return d
    name = d.span.text
    match names.constants.get(name):
        case t.ConstDef(value=t.Number(value=value)) if (
            d.message == UNKNOWN_NAME(d.span, (), what="name", name=name).message
        ):
            kind = "float" if isinstance(value, float) else "int"
            said = f"`{name}` is a constant of schedules; a compute has attributes: `; {name}: {kind} = {value}`"
        case _ if d.code == problems.UNKNOWN_COMPUTE.code and name in names.schedules:
            written = f"task … = {names.schedules[name].compute}(…) with {name}"
            said = f"`{name}` is a schedule: a task computes what it is for, `{written}`"
        case _ if d.code == problems.UNKNOWN_COMPUTE.code and name in names.spaces:
            said = f"`{name}` is a space: a task names a compute, and what it is scheduled by after it, `… with {name}`"
        case _ if d.code == problems.UNKNOWN_COMPUTE.code and name in names.programs:
            said = f"`{name}` is a program, with its loops as they are; schedules and tasks are of a `compute`"
        case _ if d.message == problems.UNKNOWN_NAME(d.span, (), name=name).message and (
            what := _other_item(name, names)
        ):
            said = f"`{name}` is a {what}: the items that are passed on, and applied, are modules"
        case _:
            return d
    return replace(d, notes=(help_note(said),))


def _other_item(name: str, names: Names) -> str:
    """What the file has by that name that is no value in a schedule; empty for nothing."""
    tables = (
        ("compute", names.computes),
        ("space", names.spaces),
        ("schedule", names.schedules),
        ("task", names.tasks),
    )
    return next((what for what, table in tables if name in table), "")


# --- schedules ---------------------------------------------------------------------------------------------------------


def blocks_of(schedule: t.ScheduleDef, computes: Mapping[str, t.ComputeDef], library: Library) -> list[str]:
    """The possible names of the blocks that a schedule has in scope."""
    compute = computes.get(schedule.compute)
    if compute is None:
        return []
    return block_names(compute, library, [n.id for n in walk(schedule) if isinstance(n, t.Name)])


# --- tasks -----------------------------------------------------------------------------------------------------------


def task_bindings(task: t.TaskDef, constants: Mapping[str, t.ConstDef] | None = None) -> dict[str, Bound]:
    """The bindings of a task: numbers for sizes and attributes, ranges for open sizes, names of types. One of the `constants`
    may say how often sizes occur. Raises TschedError."""
    out: dict[str, Bound] = {}
    found: list[Diagnostic] = []
    seen: set[str] = set()
    for name, value in task.bindings:
        twice = name in seen
        seen.add(name)
        match value:
            case _ if twice:
                found.append(problems.BOUND_TWICE(name.span, name=name))
            case t.Number(value=number):
                out[name] = number
            case t.Negate(operand=t.Number(value=number)):
                out[name] = -number
            case t.Name(id=dtype):
                out[name] = dtype
            case t.RangeExpr(low=t.Number(value=int(low)), high=t.Number(value=int(high))) if 0 <= low <= high:
                if value.like is not None:
                    opened = _occurring(name, value.like, low, high, constants or {})
                    if isinstance(opened, OpenRange):
                        out[name] = opened
                    else:
                        found += opened
                    continue
                at = [e.value for e in value.at if isinstance(e, t.Number) and isinstance(e.value, int)]
                first = max(low, 1)
                if wrong := [
                    e for e in value.at if not (isinstance(e, t.Number) and e.value in range(first, high + 1))
                ]:
                    found += (
                        problems.NOT_TIMED(e.span, name=name, value=e.span.text, low=first, high=high) for e in wrong
                    )
                else:
                    out[name] = OpenRange(low, high, tuple(at))
            case t.RangeExpr():
                found.append(problems.NO_SIZES(value.span, name=name, range=value.span.text))
            case _:
                found.append(problems.NOT_A_SIZE(value.span, name=name))
    found += _timed_together([(name, value) for name, value in task.bindings if isinstance(value, t.RangeExpr)])
    if found:
        raise TschedError(*found)
    return out


def _occurring(
    name: t.Word, like: t.Expr, low: int, high: int, constants: Mapping[str, t.ConstDef]
) -> OpenRange | tuple[Diagnostic, ...]:
    """The range with the sizes that stand for those that occur, or the findings."""
    named = constants.get(like.id) if isinstance(like, t.Name) else None
    try:
        found = occurring(like if named is None else named.value, first := max(low, 1), high)
    except TschedError as e:
        return e.diagnostics
    if outside := [n for n in found if not first <= n <= high]:
        return (problems.NOT_TIMED(like.span, name=name, value=str(outside[0]), low=first, high=high),)
    found = representatives(found)
    return OpenRange(low, high, tuple(found), tuple(found.values()))


def _timed_together(ranges: list[tuple[t.Word, t.RangeExpr]]) -> Iterator[Diagnostic]:
    """The findings for dimensions with different numbers of sizes after `at`, since these are timed together."""
    given = [(name, value) for name, value in ranges if value.at]
    for name, value in given[1:]:
        first, sizes = given[0]
        if len(value.at) != len(sizes.at):
            count, wanted = len(value.at), len(sizes.at)
            yield problems.TIMED_APART(value.span, name=name, count=count, first=first, wanted=wanted)


def _task(task: t.TaskDef, names: Names) -> Iterator[Diagnostic]:
    compute = names.computes.get(task.compute)
    if task.with_ is not None:
        yield from _choice(task, task.with_, names)
    if compute is None:
        notes = near_or_elsewhere(task.compute, names.computes)
        yield _of_another_layer(problems.UNKNOWN_COMPUTE(task.compute.span, notes=notes, name=task.compute), names)
        return
    try:
        bindings = task_bindings(task, names.constants)
    except TschedError as e:
        yield from e.diagnostics
        return
    known = {*dimensions(compute), *(a.name for a in compute.attributes), APPROX}
    computed = {name for name, _ in compute.where}
    wrong = [name for name, _ in task.bindings if name not in known]
    for name in wrong:
        if name in computed:
            yield COMPUTED_BINDING(name.span, compute=compute.name, name=name)
        else:
            yield UNKNOWN_BINDING(name.span, notes=near(name, known, "leave it out"), compute=compute.name, name=name)
    own = any(a.name == APPROX for a in compute.attributes) or APPROX in dimensions(compute)
    faults = [wrong_error(bindings[n], n.span) for n, _ in task.bindings if n == APPROX and not own]
    yield from (x for x in faults if x is not None)
    if not wrong and not any(faults) and compute.name not in names.broken:
        try:
            made = compute_layer.elaborate(compute, bindings, str(task.name), names.library, task.conditions)
            names.elaborated[task.name] = made
        except TschedError as e:
            note = problems.where(f"for task `{task.name}`", task.name.span)
            yield from (replace(d, notes=(*d.notes, note)) for d in e.diagnostics)
            return
        schedule = None if task.with_ is None else names.schedules.get(task.with_)
        if schedule is not None and schedule.body and isinstance(last := schedule.body[-1], t.Select):
            with suppress(TschedError):  # sizes that are none are found in the schedule
                if (found := lacking(last, made.dims)) is not None:
                    yield replace(
                        found, notes=(*found.notes, problems.where(f"for task `{task.name}`", task.name.span))
                    )


def _choice(task: t.TaskDef, name: t.Word, names: Names) -> Iterator[Diagnostic]:
    prior = names.priors.get(name)
    schedule = names.schedules.get(prior.of if prior is not None else name)
    if schedule is not None and schedule.compute != task.compute:
        yield problems.OTHER_COMPUTE(name.span, name=name, compute=schedule.compute, wanted=task.compute)
    elif schedule is None and prior is None and name not in names.spaces:
        known = (*names.schedules, *names.spaces, *names.priors)
        yield problems.UNKNOWN_CHOICE(name.span, notes=near_or_elsewhere(name, known), name=name)
