"""A space as a model: a task's program, the rules or schedule for it, the target, and decisions from outside of the file.
Sampling it gives traces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from hashlib import blake2b

from tensorc_dsl.base.diagnostic import TschedError, help_note
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.resources import stdlib_files, stdlib_names
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check.items import target_of
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.check.spaces import weights_of
from tensorc_dsl.interp.expand import Expansion, Watched
from tensorc_dsl.interp.problems import (
    BAD_VALUE,
    NO_SPACE,
    NOT_USED,
    SEVERAL_SCHEDULES,
    SEVERAL_SPACES,
    UNKNOWN_SPACE,
    UNKNOWN_TARGET,
    WHICH_TARGET,
    fail,
)
from tensorc_dsl.interp.record import Attempt
from tensorc_dsl.ir.program import Program, is_in_order
from tensorc_dsl.ir.target import GRAPH, Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Decider, Model, Trace
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_item
from tensorc_dsl.syntax.names import listed, near, nearest
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import rewrite_tree, walk


@cache
def _keep_order() -> tuple[tree.Stmt, ...]:
    """The statement that a schedule of a space in order begins with."""
    (item,) = parse(Source("keep_order", "schedule s for s { keep_order() }")).items
    assert isinstance(item, tree.ScheduleDef)
    return item.body


@frozen
class Space(Model):
    """A probability distribution over scheduled programs. `compute` is the name of the program's compute."""

    definition: tree.SpaceDef | tree.ScheduleDef
    compute: str
    program: Program
    target: Target
    modules: Mapping[str, tree.ModuleDef] = field(repr=False)
    in_order: bool = False
    """Whether each schedule begins with `keep_order()`, so that steps that would change the order of rounding are refused."""

    def expand(self, decide: Decider) -> Trace:
        return self._expanded(Expansion(self.program, self.target, self.modules, decide))

    def explain(self, trace: Trace) -> tuple[Attempt, ...]:
        """The outcome of each module in a trace of this space, in the order in which they were tried."""
        expansion = Expansion(self.program, self.target, self.modules, lambda site: trace.decisions[site.name])
        expansion.explaining = True
        self._expanded(expansion)
        return tuple(expansion.attempts)

    def watch(self, decide: Decider, is_late: Callable[[], bool] = lambda: False) -> Watched:
        """The expansion with these decisions, step by step. One that fails is kept up to there.

        Raises Late if `is_late` was true before a statement or a call.
        """
        watched = Watched(self.program, self.target, self.modules, decide, is_late)
        try:
            watched.trace = self._expanded(watched)
        except (ScheduleRefusal, TschedError) as e:
            watched.failure = e
        return watched

    def _expanded(self, expansion: Expansion) -> Trace:
        expansion.weights = {str(w.draw): weights_of(w) for w in self.definition.prior or ()}
        keeps = self.in_order and not is_in_order(self.program)
        if isinstance(self.definition, tree.ScheduleDef):
            match self.definition.body:
                case (tree.ExprStmt(value=tree.CallExpr(function=tree.Name(id="keep_order"))), *_):
                    first = ()
                case _:
                    first = _keep_order() if keeps else ()
            return expansion.schedule(replace(self.definition, body=(*first, *self.definition.body)))
        if keeps:
            expansion.run(_keep_order(), expansion.given())
        return expansion.space(self.definition, self.compute)


# Makes spaces of the tasks in a checked file: finds the program of a task, and its space or schedule.


NATIVE = "native"
"""The name for the current machine among targets."""


def task_space(file: CheckedFile, name: str, native: Target, chosen: str | None = None) -> Space:
    """The space of a task: the one that it names with `with`, else the file's schedule for its compute, else its space;
    of several spaces, the one that is not part of another.

    Its target is the one `chosen` by name, else the one that the space is written for. If that is a kind of
    targets, it is `native` if that is of the kind, else the file's only target of the kind. Raises KeyError if the file has
    no such task, TschedError if no space, several spaces, or no target can be chosen.
    """
    task = file.tasks[name]
    program = file.program(name)
    program = replace(program, intrinsics=file.instructions)
    definition = _definition(file, task)
    target = _target(file, chosen or _written(file, definition, native), native)
    return Space(definition, task.compute, program, target, file.modules)


def _written(file: CheckedFile, definition: tree.SpaceDef | tree.ScheduleDef, native: Target) -> str:
    """The name of the target that a space is written for. Raises TschedError if it may be several, or none is known."""
    if isinstance(definition, tree.ScheduleDef) or definition.target == native.kind:
        return NATIVE
    if definition.target in file.targets:
        return definition.target
    found = [name for name, item in file.targets.items() if item.kind == definition.target]
    if len(found) != 1:
        known = f"say which: `--target {found[0]}`" if found else _describe(definition.target)
        count, kind = str(len(found) or "none"), definition.target
        raise fail(WHICH_TARGET, definition.span, space=definition.name, kind=kind, count=count, known=known)
    return found[0]


def _in_library() -> Iterator[tuple[str, tree.TargetDef]]:
    """The targets that the standard library describes, with the paths of their files."""
    for name, path in stdlib_files(()) + tuple(f for folder in stdlib_names(()) for f in stdlib_files((folder,))):
        for item in parse(Source.read(path, name)).items:
            if isinstance(item, tree.TargetDef):
                yield name.removesuffix(".tsched").replace("/", "."), item


def _describe(kind: str) -> str:
    """How to get a target of a kind, as a sentence: by an item, or from the standard library if it describes one."""
    for place, item in _in_library():
        if item.kind == kind:
            return f"describe one, or `use {place}.{{{item.name}}}`"
    return f"describe one: `target mine = {kind}(cores=4)`"


def _described(name: str) -> str:
    """How a file gets a target of that name: from the library, which has it or another one of that kind, or by an item."""
    library = list(_in_library())
    for place, item in library:
        if item.name == name:
            return f"bring it: `use {place}.{{{name}}}`"
    for place, item in library:
        if item.kind == name:
            return f"targets of kind `{name}` are brought by name: `use {place}.{{{item.name}}}`, and `--target {item.name}`"
    place, item = library[0]
    return f"a file has the targets that it describes or uses: `use {place}.{{{item.name}}}`"


def _target(file: CheckedFile, name: str, native: Target) -> Target:
    if name == NATIVE:
        return native
    if name not in file.targets:
        known = (NATIVE, *(n for n in file.targets if "." not in n))
        close, _ = nearest(name, known)
        notes = near(name, known) if close else (*near(name, known), help_note(_described(name)))
        raise fail(UNKNOWN_TARGET, None, notes, file=file.source.name, name=name)
    return target_of(file.targets[name])


def _definition(file: CheckedFile, task: tree.TaskDef) -> tree.SpaceDef | tree.ScheduleDef:
    if task.with_ is not None:
        named = file.schedules.get(task.with_) or file.spaces.get(task.with_)
        if named is None:
            raise fail(UNKNOWN_SPACE, task.span, name=task.with_)
        return named
    fitting = [s for s in file.schedules.values() if s.compute == task.compute and s.prior is None]
    choices: list[tree.SpaceDef] | list[tree.ScheduleDef] = fitting or outermost(
        [s for s in file.spaces.values() if s.prior is None and s.target != GRAPH]
    )
    if len(choices) == 1:
        return choices[0]
    if not choices:
        raise fail(NO_SPACE, task.span, compute=task.compute)
    names = listed([c.name for c in choices])
    raise fail(
        SEVERAL_SPACES, task.span, count=len(choices), compute=task.compute, names=names, task=task.name,
        first=choices[0].name,
    )  # fmt: skip


def outermost(spaces: list[tree.SpaceDef]) -> list[tree.SpaceDef]:
    """The spaces that are not part of another one."""
    rules = {s.name: frozenset(r.span for r in s.rules) for s in spaces}
    holders: dict[Span, list[frozenset[Span]]] = {}
    for others in set(rules.values()):
        for rule in others:
            holders.setdefault(rule, []).append(others)

    def inside(own: frozenset[Span]) -> bool:
        # A space with all of these rules has the rule that occurs in the fewest spaces, so only these are compared.
        return bool(own) and any(own < others for others in min((holders[r] for r in own), key=len))

    within = {own: inside(own) for own in set(rules.values())}
    return [s for s in spaces if not within[rules[s.name]]]


def frozen_space(file: CheckedFile, space: Space) -> Space:
    """The space of a frozen schedule: the only schedule of the file, for the same program and target.

    Raises TschedError if the file has no schedule for the space's compute, or several.
    """
    found = [s for s in file.schedules.values() if s.compute == space.compute]
    if len(found) == 1:
        return replace(space, definition=found[0], modules=file.modules)
    others = ", ".join(f"`{s.name}` for `{s.compute}`" for s in file.schedules.values()) or "no schedule"
    count = f"{len(found)} schedules" if found else "no schedule"
    raise fail(SEVERAL_SCHEDULES, None, file=file.source.name, count=count, compute=space.compute, others=others)


# Versions of modules, spaces and schedules: digests of their words, without layout, comments and descriptions.


Versions = Mapping[str, str]
"""Digests by kind and name: `module std.cpu.tile`, `space default`."""


def versions(space: Space, modules: Iterable[str] | None = None) -> Versions:
    """The versions of the space or schedule and of its modules: the named ones, or all modules that it can reach."""
    names = space.modules if modules is None else modules
    definition = space.definition
    kind = "space" if isinstance(definition, tree.SpaceDef) else "schedule"
    found = {f"{kind} {definition.name}": _version(definition)}
    return found | {f"module {n}": _version(space.modules[n]) for n in names if n in space.modules}


def others(made: Versions, now: Versions) -> tuple[str, ...]:
    """The modules and spaces whose version has changed since a schedule was made, sorted. Those that do not exist now are
    not among them, since a schedule may have been made by another space."""
    return tuple(sorted(name for name, version in made.items() if now.get(name, version) != version))


def _version(item: tree.ModuleDef | tree.SpaceDef | tree.ScheduleDef) -> str:
    return blake2b(format_item(replace(item, doc="")).encode(), digest_size=16).hexdigest()


# Decisions from outside of a file: `ks=[64, 16]` has the meaning of the pin `:= [64, 16]`, `ks=_` removes a pin.


OPEN = "_"
"""The word that opens a draw."""


def opened(schedule: tree.ScheduleDef, names: Collection[str]) -> tree.ScheduleDef:
    """The schedule without the pins of the draws of these names; names without a draw are ignored.

    Raises TschedError (E0559) for a draw that no step depends on, such as a choice of a branch in a frozen schedule.
    """
    nodes = [*walk(schedule)]
    used = {n.id for n in nodes if isinstance(n, tree.Name)}
    for s in nodes:
        if isinstance(s, tree.DrawStmt) and s.pin is not None and s.name.name in names and s.name.name not in used:
            raise fail(NOT_USED, s.span, schedule=schedule.name, name=s.name.name)

    def unpinned(node: object) -> tree.DrawStmt | None:
        if isinstance(node, tree.DrawStmt) and node.pin is not None and node.name.name in names:
            return replace(node, pin=None)
        return None

    return rewrite_tree(schedule, unpinned)


def read_decision(text: str) -> Decision:
    """The decision that a text spells: a number, `true`, `"text"`, a list of ints, or the name of a loop.

    Raises TschedError (E0557) for anything else.
    """
    try:
        items = parse(Source("value", f"schedule s for s {{ let x ~ d() := {text} }}")).items
    except TschedError:
        raise fail(BAD_VALUE, None, text=text) from None
    match items:
        case (tree.ScheduleDef(body=(tree.DrawStmt(pin=pin),)),) if pin is not None:
            return _value(pin, text)
        case _:
            raise fail(BAD_VALUE, None, text=text)


def _value(e: tree.Expr, text: str) -> Decision:
    match e:
        case tree.Number(value=value) | tree.Bool(value=value) | tree.String(value=value) if value == value:
            return value
        case tree.Negate(operand=tree.Number(value=value)):
            return -value
        case tree.Name(id=name):
            return name
        case tree.ListExpr(items=items):
            numbers = [_value(i, text) for i in items]
            ints = tuple(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
            if len(ints) == len(numbers):
                return ints
        case _:
            pass
    raise fail(BAD_VALUE, None, text=text)
