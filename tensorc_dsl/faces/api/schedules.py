"""Schedules of a task: drawn from its space, read from a text, or written to a file that is checked, run, edited and
tuned by itself.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from numbers import Integral
from pathlib import Path

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.check.items import Names, check_items
from tensorc_dsl.check.problems import DUPLICATE_ITEM, where
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.faces.packages import SUFFIX, Resolver
from tensorc_dsl.interp.problems import UNKNOWN_DRAW
from tensorc_dsl.interp.space import Space, frozen_space, task_space
from tensorc_dsl.ir.print import format_buffer, format_program, format_timed
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal_diagnostic
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Decider, Draw, Model, Site, Trace, prior, shown
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_item
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.in_context import copies_of_constants
from tensorc_dsl.tuning.records.names import trace_for
from tensorc_dsl.tuning.records.trial import Trial, target_key
from tensorc_dsl.tuning.search.expansion import stream


@problem("E0560", "`{name}` is pinned to {pin}: it cannot be open", help="take the pin out of the module that has it")
def PINNED_DRAW(*, name: str, pin: str) -> None: ...


TRIES = 64
"""The number of refused draws in a row after which a space counts as empty."""


def schedules_of(
    source: Source, home: CheckedFile, wanted: Callable[[tree.ScheduleDef], bool] = lambda _: True
) -> CheckedFile:
    """The `wanted` schedules in a text, which use the computes, models and modules of another file. Raises TschedError."""
    file = parse(source)
    names = Names(
        computes=home.computes,
        modules=home.modules,
        models=home.models,
        intrinsics=home.intrinsics,
        library=home.library,
    )
    twice: list[Diagnostic] = []
    for item in file.items:
        if not isinstance(item, tree.ScheduleDef) or not wanted(item):
            continue
        first = names.schedules.setdefault(item.name, item)
        if first is not item:
            note = where("the first one", first.name.span)
            twice.append(DUPLICATE_ITEM(item.name.span, (note,), kind="schedule", name=item.name))
    found = [*twice, *check_items(tuple(names.schedules.values()), names)]
    if any(d.severity is Severity.ERROR for d in found):
        raise TschedError(*found)
    return replace(home, file=file, schedules=names.schedules)


def sample(model: Model, task: str, seed: int, number: int = 0) -> Trace:
    """The first trace of a stream of draws that is not refused. Raises TschedError with the last refusal if all are."""
    decide = prior(stream(seed, task, f"sample/{number}"))
    drawn: list[str] = []

    def noted(site: Site) -> Decision | None:
        drawn.append(site.name)
        return decide(site)

    for left in reversed(range(TRIES)):
        drawn.clear()
        try:
            return model.expand(noted)
        except ScheduleRefusal as e:
            if not left or not drawn:  # without a draw each further try would be the same
                raise TschedError(refusal_diagnostic(e)) from e
    raise AssertionError("the last try returns or raises")


@frozen
class _InTime(Model):
    """A space whose expansions raise Late when `is_late` says so."""

    space: Space
    is_late: Callable[[], bool]

    def expand(self, decide: Decider) -> Trace:
        watched = self.space.watch(decide, self.is_late)
        if watched.failure is not None:
            raise watched.failure
        assert watched.trace is not None
        return watched.trace


def refusals(space: Space, task: str, is_late: Callable[[], bool] = lambda: False) -> tuple[Diagnostic, ...]:
    """What is refused in the schedule that `sample` draws first: the error, if there is no schedule or a pin is illegal, else
    a warning for each rule that is left out.

    Raises Late if `is_late` becomes true.
    """
    try:
        trace = sample(_InTime(space, is_late), task, 0)
    except TschedError as e:
        return e.diagnostics
    return tuple(rule.diagnostic() for rule in trace.refused)


def require_draws(model: Model, task: str, names: Sequence[str], opened: Sequence[str]) -> None:
    """Raises TschedError if none of some schedules has a draw of one of the names (E0556), or an unpinned draw of one of
    `opened` (E0560).
    """
    met: dict[str, Draw] = {}
    rng = stream(0, task, "names")
    for _ in range(TRIES if names else 0):
        with suppress(ScheduleRefusal):
            for d in model.sample(rng).decided:
                if d.name not in met or met[d.name].pinned:
                    met[d.name] = d
        if met.keys() >= set(names) and not any(met[n].pinned for n in opened):
            return
    # If every schedule is refused, sampling one raises that error.
    for name in names if met else ():
        if name not in met:
            raise TschedError(UNKNOWN_DRAW(None, notes=near(name, met), task=task, name=name))
        if name in opened and met[name].pinned:
            raise TschedError(PINNED_DRAW(None, name=name, pin=shown(met[name].decision)))


@frozen
class Promise:
    """What the schedules of a task keep: the bits of a program, if there is one; those of a row whatever the size `rows` is,
    if that is named; and all of it in `words`."""

    bits_of: Program | None
    rows: str | None
    words: str


class TaskData:
    """A task on one machine, with the schedules that can be drawn from its space, or read for it."""

    def __init__(
        self,
        name: str,
        space: Space,
        checked: CheckedFile,
        model: Model | None = None,
        words: tuple[str, ...] = (),
        passing: int = 0,
        keeps: Promise | None = None,
    ) -> None:
        """`passing` are the bytes of the constant inputs of other tasks, which are read between two calls of this one."""
        self._checked = checked
        self._words = words
        self._passing = passing
        self.name = str(name)  # names from a file are words of the tree
        self.model = model or space
        self.program = space.program
        self.space = space
        self.target = space.target
        self.threads = space.target.cores
        self.keeps = keeps
        """What each schedule that is drawn keeps, beside being right; None if nothing."""

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(format_buffer, some)) for some in (self.program.inputs, self.program.outputs))
        return f"Task({self.name}({inputs}) -> {outputs}, {self.target.workers(self.threads)} of {self.target.cpu})"

    @property
    def copies(self) -> int:
        """How many copies of the constant inputs calls take in turn where kernels are timed: they then find as much of them
        in caches as behind what is `passing`."""
        return copies_of_constants(self.program, self.target, self._passing)

    @property
    def target_key(self) -> str:
        """What its times depend on besides the program, see `tuning.records.trial.target_key`."""
        return target_key(self.target, self.threads, self.copies)

    @property
    def target_keys(self) -> Sequence[str]:
        """That, and the one of times with the constant inputs in caches, if it is another."""
        return tuple(dict.fromkeys((self.target_key, target_key(self.target, self.threads))))

    @property
    def file(self) -> CheckedFile:
        """The file that has the task."""
        return self._checked

    @property
    def definition(self) -> tree.TaskDef:
        """The task as in its file."""
        return self._checked.tasks[self.name]

    def command(self, verb: str, *more: str) -> str:
        """The command line that does `verb` with the task, and with `more` words, on the same machine; empty for a task of no
        file."""
        file = self._checked.source.name
        if file.startswith("<") and file != "<stdin>":
            return ""
        return shlex.join(("tensorc-dsl", verb, "-" if file == "<stdin>" else file, self.name, *more, *self._words))

    def sample(self, seed: int, number: int = 0) -> Trace:
        """A trace drawn from the space: a function of seed and number, whole numbers.

        Raises TschedError if all draws are refused, TypeError for a seed or a number of another type.
        """
        for name, value in (("seed", seed), ("number", number)):
            if not isinstance(value, Integral):
                raise TypeError(f"{name} is a whole number, not {value!r}")
        return sample(self.model, self.name, int(seed), int(number))

    def expand(self, source: Source) -> Trace:
        """The schedule in a text, expanded for this task; open draws are drawn with seed 0. Raises TschedError."""
        return sample(self.frozen_space(source), self.name, 0)

    def expand_recorded(self, trial: Trial, name: str) -> Trace:
        """The schedule of a record of the task, or of one that is equal up to names; `name` is that of its text in messages.
        Raises TschedError."""
        return self.expand(Source(name, trace_for(trial, self.program, self.space.compute)))

    def frozen_space(self, source: Source) -> Space:
        """The schedule in a text as a space, with its open draws. Raises TschedError."""
        return frozen_space(schedules_of(source, self._checked), self.space)


def written(task: TaskData, trace: Trace, path: Path, *options: str) -> str:
    """The text of a file at `path` with the schedule: alone, where it can be; else with the command that replays it, with
    these options; a task of no file has no command."""
    text = alone(task, trace, path)
    if text is not None:
        return text
    command = task.command("replay", str(path), *options)
    return f"// {visible_line(command)}\n{trace.titled}" if command else trace.titled


def alone(task: TaskData, trace: Trace, path: Path) -> str | None:
    """The schedule as the text of a file at `path` that needs no other one but those that it uses.

    The compute is brought by a `use` where one reaches it from the folder of `path`; else it is written out. None where no
    such text says the same: the target is not this machine, or two items that must be written out have one name. What is
    returned has been read back: it has the task, with the same program and target, and its schedule expands to the same
    steps.
    """
    bindings = ", ".join(f"{name}={_binding(task, name, value)}" for name, value in task.definition.bindings)
    try:
        needed = _needed(task, trace, path)
        if needed is None:
            return None
        text = f"{needed}\n{trace.titled}\ntask {task.name} = {trace.compute}({bindings}) with {trace.name}\n"
        source = Source.of(text.encode(), str(path))
        again = task_space(load_source(source, Resolver(path)), task.name, host_target(task.threads), None)
        same = again.target == task.target and format_program(again.program) == format_program(task.program)
        return text if same and sample(again, task.name, 0).text == trace.text else None
    except TschedError:
        return None


def _binding(task: TaskData, name: str, value: tree.Expr) -> str:
    """The value of a binding as text that needs no constant of the task's file."""
    dim = next((d for d in task.program.dims if d.name == name), None)
    if isinstance(value, tree.RangeExpr) and value.like is not None and dim is not None:
        return f"{dim.low}..{dim.high}{format_timed(dim)}"
    return value.span.text


def schedule_in(text: bytes, task: TaskData, path: Path) -> Trace | str:
    """The schedule for the task in the text of such a file at `path`; else what is in it, in words.

    It is that of a task of the file with the same program and target; in a file without tasks, the schedule for the compute.
    Only instructions of the task's own file are in it: nobody has vouched for those that the text may declare.
    """
    others: list[str] = []
    try:
        source = Source.of(text, str(path))
        names = [item.name for item in parse(source).items if isinstance(item, tree.TaskDef)]
        same = not names
        checked = load_source(source, Resolver(path)) if names else task.file
        for name in names:
            space = task_space(checked, name, host_target(task.threads), None)
            if format_program(space.program) == format_program(task.program) and space.target == task.target:
                same = True
            else:
                arrays = (", ".join(map(format_buffer, some)) for some in (space.program.inputs, space.program.outputs))
                others.append(f"{name}({next(arrays)}) -> {next(arrays)}")
        # As the file says it: a step that the task's own draws begin with is not in it.
        as_it_stands = replace(task.space, in_order=False)
        found = sample(frozen_space(schedules_of(source, task.file), as_it_stands), task.name, 0) if same else None
    except (TschedError, UnicodeDecodeError) as e:
        first = e.diagnostics[0] if isinstance(e, TschedError) else None
        return f"no schedule for this task ({first.code}: {first.message})" if first else "no text"
    if found is None:
        return f"the schedule of another task, {'; '.join(others)}"
    return "a schedule with open draws" if found.open_draws else found


Item = tree.ComputeDef | tree.ReducerDef | tree.IntrinsicDef


def _needed(task: TaskData, trace: Trace, path: Path) -> str | None:
    """The compute and the instructions of the schedule, with all that they name: `use` lines, then what no `use` reaches.

    None if two of these items have one name. Raises TschedError (E0909).
    """
    checked = task.file
    words = set(re.findall(r"\w+", "\n".join(trace.lines)))
    waiting: list[Item | None] = [checked.computes.get(trace.compute)]
    waiting += [i for name, i in checked.intrinsics.items() if name in words]
    resolver = Resolver(path)
    found: dict[str, Item] = {}
    uses: defaultdict[str, set[str]] = defaultdict(set)
    inline: list[Item] = []
    while waiting:
        item = waiting.pop(0)
        if item is None or found.setdefault(str(item.name), item) is not item:
            return None
        place = _place(item.span.source, task, resolver)
        if place is not None:
            uses[place].add(str(item.name))
        elif item not in inline:
            inline.append(item)
            waiting += () if isinstance(item, tree.IntrinsicDef) else _named(item, task)
    lines = "".join(f"use {place}.{{{', '.join(sorted(some))}}}\n" for place, some in sorted(uses.items()))
    return "\n".join(filter(None, (lines, *(f"{format_item(i)}\n" for i in inline))))


def _named(item: tree.ComputeDef | tree.ReducerDef, task: TaskData) -> list[Item]:
    """The computes and reducers of other items that an item names."""
    seen = task.file.library.seen_by(item)
    words = set(re.findall(r"\w+", item.span.text)) - {item.name}
    return [i for name, i in (*seen.computes.items(), *seen.reducers.items()) if name in words]


def _place(source: Source, task: TaskData, resolver: Resolver) -> str | None:
    """The path by which a `use` in the resolver's file reaches what `source` declares; None if there is none."""
    paths = [used for used, sources in task.file.uses.items() if any(s.name == source.name for s in sources)]
    if source.name.startswith("std/"):
        return ".".join(paths[0]) if paths else source.name.removesuffix(SUFFIX).replace("/", ".")
    file = Path(source.name).resolve()
    if file == resolver.file.resolve():
        return None  # it is about to be replaced
    for folder in (resolver.folder, *(place.folder for place in resolver.shared)):
        with suppress(ValueError):
            paths.append(file.relative_to(folder.resolve()).with_suffix("").parts)
    for used in paths:
        with suppress(TschedError):
            if all(re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) for part in used) and file in map(
                Path.resolve, resolver.locate(used)
            ):
                return ".".join(used)
    return None
