"""Kernels of a task: made from a schedule, the best one that is known, callable on arrays, pickled as their schedules."""

from __future__ import annotations

import copyreg
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, assert_never

from tensorc_dsl.backend.once import lowered_once, lowering_for
from tensorc_dsl.backend.protocol import (
    Backend,
    Bound,
    CompiledKernel,
    CompileError,
    LoadedKernel,
    LoweredKernel,
    Registers,
    require_backend,
)
from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.base.resources import cache_path
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.rounding import is_kept
from tensorc_dsl.faces.api.schedules import TRIES, TaskData
from tensorc_dsl.interp.space import others, versions
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import IN_RANGE, Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError, format_shape
from tensorc_dsl.processes.machine import Turns
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.syntax.tree import TaskDef
from tensorc_dsl.tuning.measure.emulation import MOST_FLOPS, Emulated, emulate, too_large
from tensorc_dsl.tuning.records.database import Database, package_version
from tensorc_dsl.tuning.records.emulated_counts import Counted
from tensorc_dsl.tuning.records.errors import UNTUNED, Passed, other_version, passed_over
from tensorc_dsl.tuning.records.schema import MAX_TEXT
from tensorc_dsl.tuning.records.shipped import Shipped, shipped
from tensorc_dsl.tuning.records.trial import program_key
from tensorc_dsl.tuning.search.expansion import meaning_of
from tensorc_dsl.tuning.search.source import PROBABILITY, Forecast, first_choice, guess
from tensorc_dsl.tuning.search.team import Ground, Team
from tensorc_dsl.tuning.search.tune import TuneResult

# Makes kernels from schedules, or an error with the reason of a failure.


def require_generator(target: Target, task: str) -> Backend:
    """The backend for the target. Raises TschedError (E0910, E0915, E0916) if no code can be made for it."""
    backend = require_backend(target.kind, task)
    backend.require_known(target)
    return backend


def require_machine(target: Target, task: str) -> None:
    """Raises TschedError (E0910, E0914, E0915, E0916) if kernels for the target cannot run on this machine."""
    require_generator(target, task).require_here(target, task)


@problem(
    "E0920",
    "`{task}` is for a target of kind `{kind}`, a CPU, and only kernels for other machines are emulated",
    help="leave out `--emulate`: they run as they are; or name a target for GPUs by `--target`",
)
def NOT_EMULATED(*, task: str, kind: str) -> None: ...
@problem(
    "E0921",
    "`{task}` takes {count:.2g} operations, and up to {most:.2g} are emulated",
    help="emulate it at smaller sizes, with a `task` of its own",
)
def TOO_LARGE(*, task: str, count: float, most: float) -> None: ...


@problem(
    "E0908",
    "the schedule {how}: {why}",
    help="take another schedule: `tune` searches for one, `sample --seed N` draws one",
)
def FAILED(*, how: str, why: str) -> None: ...


def failed(how: str, why: str, task: TaskDef | None = None) -> TschedError:
    """The error for a schedule that was requested by name and failed, at its task if that is known."""
    return TschedError(FAILED(task and task.name.span, how=how, why=why))


@contextmanager
def failing_at(task: TaskDef) -> Generator[None]:
    """Schedules that fail, without a place, do so at the task."""
    try:
        yield
    except TschedError as e:
        if e.diagnostics[0].code != "E0908" or e.diagnostics[0].span is not None:
            raise
        raise TschedError(replace(e.diagnostics[0], span=task.name.span)) from e.__cause__


def lowered(program: Program, target: Target) -> LoweredKernel:
    """A scheduled program, lowered. Raises TschedError (E0908) if it cannot be lowered."""
    try:
        return lowered_once(program, target).kernel
    except LowerError as e:
        raise failed("cannot be lowered", str(e)) from e


def lowered_text(program: Program, target: Target, after: str | None) -> str:
    """The lowered program as text, or the program after one of the passes. Raises TschedError (E0908)."""
    backend = lowering_for(target)
    if after is None:
        return backend.text(lowered(program, target))
    try:
        return backend.text_after(program, target, after)
    except LowerError as e:
        raise failed("cannot be lowered", str(e)) from e


def cost_text(program: Program, scheduled: Program, target: Target) -> str:
    """What bounds a scheduled program by the model of time, at the last of the sizes at which the program is timed.

    Raises TschedError (E0908).
    """
    sizes = sizing(program).timed[-1]
    told = lowering_for(target).explain(lowered(scheduled, target), target, sizes)
    return told or "there is no model of time for this target\n"


def emulated(program: Program, scheduled: Program, target: Target, registers: Registers) -> Emulated:
    """A scheduled program, run on this CPU thread by thread and checked. A model of time takes what is known of the
    code of its kernels.

    Raises TschedError (E0908, E0910, E0915, E0920, E0921) if it cannot be.
    """
    backend = require_generator(target, program.name)
    if count := too_large(program):
        raise TschedError(TOO_LARGE(None, task=program.name, count=count, most=MOST_FLOPS))
    lower = lowered(scheduled, target)
    try:
        kernel = backend.emulate(lower)
    except CompileError as e:
        raise failed("does not compile", str(e)) from e
    if kernel is None:
        raise TschedError(NOT_EMULATED(None, task=program.name, kind=target.kind))
    found = emulate(program, kernel, extremes=(IN_RANGE, True) not in scheduled.annotations)
    return replace(found, cycles=None if found.fault else backend.cycles(lower, target, found.counted_at, registers))


def require_registers(scheduled: Program, target: Target) -> Registers:
    """The code of the kernels, with the registers of a thread if an assembler is here that says so.

    Raises TschedError (E0908) if it says that they do not suffice, or if there is no code.
    """
    backend = require_generator(target, scheduled.name)
    try:
        found = backend.registers(backend.compile(lowered(scheduled, target), target, 1))
    except CompileError as e:
        raise failed("does not compile", str(e)) from e
    if found.spilled:
        raise failed("spills registers", f"{found.spilled}; make the tiles of a thread smaller")
    return found


def counted(task: TaskData, scheduled: Program) -> Counted:
    """What an emulation of a scheduled program of the task finds, with the registers that an assembler says, where one is
    here; or the reason why it has no kernel. Raises TschedError (E0910, E0915, E0920, E0921) if the task has none."""
    try:
        with failing_at(task.definition):  # the model does not cover spills, so they are refused first
            registers = require_registers(scheduled, task.target)
            return Counted.of(emulated(task.program, scheduled, task.target, registers))
    except TschedError as e:
        if e.diagnostics[0].code != FAILED.code:
            raise
        return Counted(refused=e.diagnostics[0].message)


def compiled(program: Program, target: Target, threads: int) -> CompiledKernel:
    """A scheduled program in machine code. Raises TschedError (E0908, E0910) if that fails."""
    try:
        return require_backend(target.kind, program.name).compile(lowered(program, target), target, threads)
    except CompileError as e:
        raise failed("does not compile", str(e)) from e


def viewed(kernel: CompiledKernel, stage: str) -> str:
    """The text of a stage of a compiled kernel. Raises TschedError (E0908, E0919) if there is none."""
    try:
        return kernel.view(stage)
    except CompileError as e:
        raise failed(f"has no stage `{stage}`", str(e)) from e


def loaded(program: Program, target: Target, threads: int) -> LoadedKernel:
    """A scheduled program as a kernel in this process. Raises TschedError (E0908, E0910) if that fails."""
    code = compiled(program, target, threads).code
    try:
        return require_backend(target.kind, program.name).load(code, program, threads)
    except CompileError as e:
        raise failed("cannot be loaded", str(e)) from e


# The best schedule that is known for a task on its target, and where it comes from.


@frozen
class Recorded:
    """The fastest schedule that a search recorded, in that row of the database."""

    row: int
    seconds: float


@frozen
class Drawn:
    """A draw from the space with this seed; nothing is known of its time."""

    seed: int


@frozen
class Given:
    """The task's own schedule, or that of a file."""


Origin = Recorded | Forecast | Drawn | Given


def describe(origin: Origin) -> str:
    """What comes after "the schedule is"."""
    match origin:
        case Recorded(seconds=seconds):
            return f"the fastest recorded one, {units.seconds(seconds)}"
        case Forecast(tasks=tasks, slower=slower, elsewhere=0):
            few = units.counted(tasks, "other task")
            return f"predicted from {few} on this machine, probably 1.0–{slower:.1f} times the time of the best"
        case Forecast(tasks=tasks, slower=slower):
            few = units.counted(tasks, "task")
            return f"predicted from {few}, also on other machines, probably 1.0–{slower:.1f} times the time of the best"
        case Drawn(seed=seed):
            return f"drawn with seed {seed}"
        case Given():
            return "given"
        case _:
            assert_never(origin)


def facts(origin: Origin) -> dict[str, Any]:
    """The origin as data: its kind as `from`, and its fields."""
    more = {"probability": PROBABILITY} if isinstance(origin, Forecast) else {}
    kind = "predicted" if isinstance(origin, Forecast) else type(origin).__name__.lower()
    return {"from": kind} | asdict(origin) | more


@frozen
class Known:
    """A schedule and its origin."""

    trace: Trace
    origin: Origin


def known(task: TaskData, records: Path | None, on_warning: Callable[[Diagnostic], None]) -> Known:
    """The fastest recorded schedule; without one the schedule that records of other tasks, or those of the package, predict
    to be the fastest; with too few of them the draw with seed 0. The task's own schedule, if it has no open draws and none
    is recorded.

    Raises TschedError (E0701, E0702, E0705, E0708), E0711 if there are no records where `records` says, and if the space
    has no schedule.
    """
    database = Database.reading() if records is None else Database.required(records)
    if database is None:
        return _predicted(task, None)
    with database:
        found = recorded_schedule(task, database, on_warning)
        return found or _predicted(task, database)


def untuned(task: TaskData, origin: Origin) -> Diagnostic | None:
    """A warning (W0705) where the schedule is neither recorded nor given."""
    if isinstance(origin, Recorded | Given):
        return None
    return UNTUNED(None, task=task.name, origin=describe(origin))


PROVED = 64
"""Of schedules that are to keep bits so many are looked at: other searches recorded faster ones that keep none."""


def recorded_schedule(task: TaskData, database: Database, on_warning: Callable[[Diagnostic], None]) -> Known | None:
    """The fastest recorded schedule that can be applied and lowered; None if there is none. See `Task.recorded`.

    In a model, one that was timed with the constant inputs in caches only comes behind those that were not.
    """
    rankings = [database.ranking(program_key(task.program), key) for key in task.target_keys]
    passed = [p for ranking in rankings for p in ranking.passed]
    found: Known | None = None
    tries = TRIES if task.keeps is None else PROVED
    for row in chain.from_iterable(ranking.rows[:tries] for ranking in rankings):
        best = database.trial(row)
        try:
            trace = task.expand_recorded(best, f"<trial {best.trial} of {best.task}>")
            with failing_at(task.definition):
                lowered(trace.program, task.target)
        except TschedError as e:
            if task.keeps is None:
                passed.append(Passed(row, f"{e.diagnostics[0].code}: {e.diagnostics[0].message}"))
            continue
        if task.keeps is not None and not is_kept(task, task.keeps, trace):
            continue
        if changed := others(best.modules, versions(task.space)):
            on_warning(other_version(task.name, row, changed))
        assert best.seconds is not None
        found = Known(trace, Recorded(row, best.seconds))
        break
    if passed:
        on_warning(passed_over(database.path, task.name, passed))
    return found


def _default(task: TaskData) -> Known:
    trace = task.sample(0)
    return Known(trace, Drawn(0) if trace.open_draws else Given())


def _predicted(task: TaskData, database: Database | None) -> Known:
    default = _default(task)
    if isinstance(default.origin, Given):
        return default
    found = guess(task.model, task.program, task.target, default.trace, database, _shipped(task))
    for trace in () if found is None else found.traces:
        assert found is not None
        try:
            with failing_at(task.definition):
                lowered(trace.program, task.target)
        except TschedError:
            continue
        return Known(trace, found.forecast)
    return default


def _shipped(task: TaskData) -> Shipped | None:
    """The records of the package, if they can be read."""
    found = shipped(meaning_of(task.target))
    return None if isinstance(found, Diagnostic) else found


def chosen_soon(task: TaskData, records: Path | None, team: Team | None = None) -> Trace:
    """See `Task.first_choice`. A team makes the traces on other cores, too; they are the same."""
    default = _default(task)
    if isinstance(default.origin, Given):
        return default.trace
    database = Database.reading() if records is None else Database.required(records)
    with nullcontext() if database is None else database:
        lowering_for(task.target).constants(task.target, measure=True)
        kept = _kept(task)
        if kept is not None and (text := kept.content(MAX_TEXT)):
            with suppress(TschedError, UnicodeDecodeError):
                return task.expand(Source("<first choice>", text.decode()))
        ground = Ground(task.model, task.target, sizing(task.program).timed[-1])
        expander = None if team is None else team.expander(ground, Turns())
        teachers = database, _shipped(task)
        trace = first_choice(task.model, task.program, task.target, default.trace, *teachers, expander=expander)
    if kept is not None:
        with suppress(TschedError, OSError):
            kept.path.parent.mkdir(exist_ok=True)
            kept.write(trace.text)
    return trace


def _kept(task: TaskData) -> Output | None:
    """Where the first choice of a task is kept: until the task, its space, the package or the machine's constants change."""
    folder = cache_path("choices")
    if folder is None or task.model is not task.space:
        return None
    facts = (
        package_version(),
        task.target_key,
        task.space.in_order,
        sorted(lowering_for(task.target).constants(task.target).items()),
        sorted(versions(task.space).items()),
        format_program(task.program),
    )
    return Output(folder / f"{sha256(repr(facts).encode()).hexdigest()}.tsched")


# A task's kernel for one schedule, callable on arrays.


class Kernel:
    """Call it with the task's inputs to get its outputs, or with inputs and outputs to have the outputs filled.

    `trace` is its schedule, for `target`. `seconds` per call is the time that the search measured, and `search` the result
    of the search; both are None for a kernel that was replayed. `origin` says where the schedule of `Task.best` is from.

    A pickle contains the schedule, but not `search`. Loading it, with the same version of this package, compiles the kernel
    again, or raises TschedError (E0914) if the machine cannot run it. A copy is the same object, since calls do not change
    it.
    """

    def __init__(
        self,
        native: LoadedKernel,
        task: str,
        target: Target,
        trace: Trace,
        seconds: float | None = None,
        search: TuneResult | None = None,
        origin: Origin | None = None,
        text_at: Callable[[Path], str] | None = None,
    ) -> None:
        self._native = native
        self.task = task
        self.target = target
        self.threads = target.cores
        self.trace = trace
        self.seconds = seconds
        self.search = search
        self.origin = origin
        self._text_at = text_at

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The output, or a tuple of several.

        Arrays are given in the order of the task or by name, `kernel(A=a, B=b)`, outputs too: `kernel(a, b, C=c)`. They are
        NumPy's or support DLPack on the CPU; an input without dimensions may be a number. New outputs belong to the library
        of all input arrays, or to NumPy if there are several libraries. Raises ValueError if a name, a dtype, a shape or a
        layout is not the task's, or an array has a mask.
        A kernel for the GPU takes arrays that are there too, see docs/gpu.md; an error of the GPU is a RuntimeError.
        """
        return self._native(*arrays, **named)

    @property
    def loaded(self) -> LoadedKernel:
        """The kernel as its backend has it."""
        return self._native

    @property
    def constants(self) -> tuple[str, ...]:
        """The names of the constant inputs."""
        return tuple(p.name for p in self._native.params if p.constant)

    def bind(self, /, **constants: Any) -> Bound:
        """The kernel for these constant inputs, all given by name; call it with the other inputs.

        Values that depend on the constant inputs alone are computed here, once, and not in each call. The arrays may change
        afterwards, since the data that calls need are copied. Raises ValueError as a call does.
        """
        return self._native.bind(**constants)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule to a file, as the command `tune` does: with its task and its compute or the `use` of it, so that
        it is loaded, run and edited by itself; `Task.replay` takes it too.

        The file has the schedule alone for a kernel from a pickle, and for another machine than this one. What was in it is
        replaced. Raises TschedError (E0903, E0904) if it cannot be written.
        """
        place = Path(path)
        text = self.trace.text if self._text_at is None else self._text_at(place)
        Output(place, typed=True).write(text)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, _: object) -> Kernel:
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{format_shape(p.shape)}" for p in self._native.params)
        origin = "" if self.origin is None else f"; schedule {describe(self.origin)}"
        return f"Kernel({params}{origin})"


# Pickles kernels as their schedules, and compiles them again when a pickle is loaded.


def remade(
    task: str,
    trace: Trace,
    target: Target,
    triple: str,
    threads: int,
    seconds: float | None,
    origin: Origin | None,
) -> Kernel:
    """The kernel of a schedule that was made for a target by a machine with a triple.

    Raises TschedError (E0914) if this machine cannot run it.
    """
    require_machine(replace(target, triple=triple), task)
    return Kernel(loaded(trace.program, target, threads), task, target, trace, seconds, origin=origin)


def _reduced(kernel: Kernel) -> tuple[Callable[..., Kernel], tuple[Any, ...]]:
    triple = kernel.target.triple or require_backend(kernel.target.kind, kernel.task).processor().triple
    return remade, (kernel.task, kernel.trace, kernel.target, triple, kernel.threads, kernel.seconds, kernel.origin)


copyreg.pickle(Kernel, _reduced)
