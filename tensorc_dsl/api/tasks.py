"""Files and their tasks: what a task computes, the space over it, and what can be done with both."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

from tensorc_dsl.api.export import write_files
from tensorc_dsl.api.kernel import Kernel
from tensorc_dsl.backend.find import backend_of, native, require_backend
from tensorc_dsl.backend.protocol import (
    Backend,
    CompiledKernel,
    CompileError,
    KernelLibrary,
    LoadedKernel,
    LoweredKernel,
)
from tensorc_dsl.check.items import Names, check_items
from tensorc_dsl.check.problems import near
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.diagnostic import Diagnostic, Problem, Severity, TschedError, render
from tensorc_dsl.interp.pins import opened
from tensorc_dsl.interp.problems import UNKNOWN_DRAW
from tensorc_dsl.interp.space import Space
from tensorc_dsl.interp.tasks import frozen_space, task_space
from tensorc_dsl.ir.bind import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.machine.yardsticks import Yardsticks, measure_yardsticks
from tensorc_dsl.measure.local import LocalRunner
from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.packages.files import Disk, Files
from tensorc_dsl.packages.resolve import Resolver
from tensorc_dsl.records.database import Database
from tensorc_dsl.records.errors import Passed, passed_over
from tensorc_dsl.records.keys import program_key, target_key
from tensorc_dsl.reference.open_sizes import mean_flops, sizing
from tensorc_dsl.report.files import read_source
from tensorc_dsl.report.missing import no_such
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.schedule.render import refusal_diagnostic
from tensorc_dsl.search.events import Listener
from tensorc_dsl.search.streams import stream
from tensorc_dsl.search.tune import TuneResult, tune
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.trace.model import Model, shown
from tensorc_dsl.trace.trace import Draw, Trace
from tensorc_dsl.validate.validate import Invalid, Report, validate

PINNED_DRAW = Problem(
    "E0560", "`{name}` is pinned to {pin}: it cannot be open", help="take the pin out of the module that has it"
)

TRIES = 64
"""Draws in a row that may be refused before a space counts as empty."""

StrPath = str | os.PathLike[str]


class NoValidCandidate(Exception):
    """A search ended without a kernel that works. `result` tells what became of each trial."""

    def __init__(self, result: TuneResult) -> None:
        super().__init__(f"none of {result.trials} candidates is valid: {result.statuses}")
        self.result = result


class WrongSchedule(Exception):
    """A search ended with a schedule that computes something else than its task: a bug in a primitive or in the proof."""

    def __init__(self, trace: Trace, diagnostic: Diagnostic) -> None:
        super().__init__(f"a schedule is wrong: {diagnostic.code}: {diagnostic.message}")
        self.trace = trace
        self.diagnostic = diagnostic


class UnknownTask(TschedError, KeyError):
    """A file has no task of that name (E0905): bad input, and what a mapping raises."""

    __str__ = TschedError.__str__


def warn_of(diagnostic: Diagnostic) -> None:
    """Tell of it as Python does."""
    warnings.warn(render(diagnostic), stacklevel=3)


def load(
    path: StrPath,
    *,
    threads: int | None = None,
    include: Sequence[StrPath] = (),
    target: str | None = None,
    mcpu: str | None = None,
    files: Files | None = None,
) -> TaskFile:
    """The tasks of a `.tsched` file, for this machine; kernels use `threads` threads, by default one per processor.

    What the file uses is looked for in the folders `include` too. `target` names a target of the file, or "native", to
    take the place of those that its spaces are written for, and `mcpu` a CPU, by LLVM's name, to take the place of the
    target's. What is read comes through `files`, by default from the disk. Raises TschedError with everything that is wrong
    with the file.
    """
    files = files or Disk()
    checked = load_source(files.read(path), Resolver(path, include, files))
    return TaskFile(checked, host_target(threads), target, mcpu)


class TaskFile(Mapping[str, "Task"]):
    """The tasks of one file by name, in the order of the file."""

    def __init__(
        self, checked: CheckedFile, native: Target, target: str | None = None, mcpu: str | None = None
    ) -> None:
        self.checked = checked
        self.native = native
        self._target = target
        self._mcpu = mcpu

    def __getitem__(self, name: str) -> Task:
        """The task of that name. Raises UnknownTask with the nearest name when there is none, TschedError (E0910, E0915) for
        a CPU that its target cannot have."""
        if name not in self.checked.tasks:
            known = list(self.checked.tasks)
            raise UnknownTask(*no_such("E0905", "task", name, known, self.checked.source.name).diagnostics)
        space = task_space(self.checked, name, self.native, self._target)
        if self._mcpu is not None:
            backend = require_backend(space.target.kind, name)
            space = replace(space, target=backend.with_cpu(space.target, self._mcpu))
        return Task(name, space, self.checked)

    def __iter__(self) -> Iterator[str]:
        return iter(self.checked.tasks)

    def __len__(self) -> int:
        return len(self.checked.tasks)


class Task:
    """One task on one machine. `program` is what it computes, unscheduled; `space` how it may be computed.

    `model` is what schedules are drawn from: the space, or what handlers have made of it.
    """

    def __init__(self, name: str, space: Space, checked: CheckedFile, model: Model | None = None) -> None:
        self._checked = checked
        self.name = name
        self.model = model or space
        self.program = space.program
        self.space = space
        self.target = space.target
        self.threads = space.target.cores

    @property
    def backend(self) -> Backend:
        """What makes code for the target. Raises TschedError (E0910) where nothing does."""
        return require_backend(self.target.kind, self.name)

    def require_code(self) -> None:
        """Raises TschedError (E0910, E0915, E0916) where no code can be made for the target, so that nothing can be run or
        measured."""
        self.backend.require_known(self.target)

    def require_machine(self) -> None:
        """Raises TschedError (E0910, E0914) where kernels for the target cannot run on this machine."""
        self.require_code()
        self.backend.require_here(self.target, self.name)

    def yardsticks(self) -> Yardsticks:
        """The machine's peak and NumPy's time for the task, measured now. TschedError (E0910, E0914) of another's target."""
        self.require_machine()
        return measure_yardsticks(self.program, self.target, self.threads)

    @property
    def flops(self) -> int:
        """The operations of one call; of a task with open dimensions their mean over the sizes that are timed."""
        return mean_flops(self.program)

    @property
    def timed_at(self) -> tuple[Sizes, ...]:
        """The sizes of the open dimensions that kernels are timed at, those of the task or by default; one of none where no
        dimension is open."""
        return sizing(self.program).timed

    def check(self) -> Trace:
        """A schedule that applies and lowers. Raises TschedError with the reason when none turns up."""
        trace = self.sample(0)
        self.lower(trace)
        return trace

    def sample(self, seed: int, number: int = 0) -> Trace:
        """A trace drawn from the space: a function of the seed and the number. TschedError when all draws are refused."""
        return sample(self.model, self.name, seed, number)

    def drawn_from(self, model: Model) -> Task:
        """The same task with another model, for instance `handlers.condition(task.model, {"ks": (64, 16)})`."""
        return Task(self.name, self.space, self._checked, model)

    def over(self, trace: StrPath) -> Task:
        """The same task with the schedule in a file as its space: only what that leaves open is drawn or searched."""
        return Task(self.name, self._frozen(read_source(trace)), self._checked)

    def opened(self, names: Collection[str]) -> Task:
        """The same task where the draws of these names are not pinned by its schedule; without handlers.

        Raises TschedError (E0559) for a draw that nothing in the schedule depends on.
        """
        if not isinstance(self.space.definition, tree.ScheduleDef):
            return self
        space = replace(self.space, definition=opened(self.space.definition, names))
        return Task(self.name, space, self._checked)

    def require_draws(self, names: Sequence[str], opened: Sequence[str] = ()) -> None:
        """Raises TschedError where none of some schedules of the task has a draw of one of the names (E0556), or one of
        `opened` that is not pinned (E0560).
        """
        met: dict[str, Draw] = {}
        rng = stream(0, self.name, "names")
        for _ in range(TRIES if names else 0):
            with suppress(ScheduleRefusal):
                for d in self.model.sample(rng).draws:
                    if d.name not in met or met[d.name].pinned:
                        met[d.name] = d
            if met.keys() >= set(names) and not any(met[n].pinned for n in opened):
                return
        # Where every schedule is refused, that is what there is to say, and drawing one says it.
        for name in names if met else ():
            if name not in met:
                raise TschedError(UNKNOWN_DRAW(None, notes=near(name, met), task=self.name, name=name))
            if name in opened and met[name].pinned:
                raise TschedError(PINNED_DRAW(None, name=name, pin=shown(met[name].decision)))

    def frozen(self, trace: StrPath | Trace) -> Trace:
        """The trace that a file holds, expanded for this task; what it leaves open is drawn with seed 0.

        Raises TschedError where the file is wrong or a step does not apply.
        """
        if isinstance(trace, Trace):
            return trace
        return self.expand(read_source(trace))

    def expand(self, source: Source) -> Trace:
        """As `frozen`, from a text."""
        return sample(self._frozen(source), self.name, 0)

    def _frozen(self, source: Source) -> Space:
        return frozen_space(_schedules_of(source, self._checked), self.space)

    def search(
        self,
        *,
        trials: int = 64,
        seed: int = 0,
        strategy: str = "bayes",
        records: Path | None = None,
        on_event: Listener | None = None,
    ) -> TuneResult:
        """Try `trials` schedules, each checked and timed in a child process and recorded in the database.

        Raises WrongSchedule where one of the best of them is shown not to compute what the task does, and TschedError
        (E0910, E0914) where no code can be made for the target, or none that runs here.
        """
        self.require_machine()
        with ExitStack() as stack:
            database = stack.enter_context(Database.open(records))
            runner = stack.enter_context(LocalRunner(self.program, self.target, threads=self.threads))
            result = tune(
                self.model, self.program, self.target, strategy=strategy, trials=trials, seed=seed, runner=runner,
                threads=self.threads, database=database, on_event=on_event,
            )  # fmt: skip
        for trace in result.finalists or ([result.best] if result.best else []):
            report = self.verify(trace)
            if isinstance(report, Invalid):
                raise WrongSchedule(trace, report.diagnostic)
        return result

    def tune(
        self, trials: int = 64, *, seed: int = 0, strategy: str = "bayes", records: StrPath | None = None
    ) -> Kernel:
        """The fastest kernel that a search finds. Raises NoValidCandidate when there is none.

        Trials are recorded in the file `records`, by default the one in the user's data folder.
        """
        result = self.search(trials=trials, seed=seed, strategy=strategy, records=Path(records) if records else None)
        if result.best is None:
            raise NoValidCandidate(result)
        return Kernel(self._loaded(result.best), result.best, result.best_seconds, result)

    def replay(self, trace: StrPath | Trace) -> Kernel:
        """The kernel that a frozen schedule makes. Raises TschedError where it does not fit this task or machine."""
        self.require_machine()
        found = self.frozen(trace)
        return Kernel(self._loaded(found), found)

    def recorded(
        self, records: Path | None = None, *, on_warning: Callable[[Diagnostic], None] = warn_of
    ) -> Trace | None:
        """The best schedule in the database for this task on this machine; None where there is none.

        Records that hold what no search writes, or a schedule that does not fit, are passed over with a warning (W0701).
        The database is only read. Raises TschedError (E0701, E0702, E0705, E0708).
        """
        database = Database.reading(records)
        if database is None:
            return None
        with database:
            ranking = database.ranking(program_key(self.program), target_key(self.target, self.threads))
            passed = list(ranking.passed)
            found: Trace | None = None
            for row in ranking.rows[:TRIES]:
                best = database.trial(row)
                try:
                    found = self.expand(Source(f"<trial {best.trial} of {best.task}>", best.trace))
                    self.lower(found)
                    break
                except TschedError as e:
                    found = None
                    passed.append(Passed(row, f"{e.diagnostics[0].code}: {e.diagnostics[0].message}"))
            if passed:
                on_warning(passed_over(database.path, self.name, passed))
        return found

    def verify(self, trace: Trace) -> Report:
        """Whether the schedule's program computes what the task does: shown from the two programs alone."""
        return validate(self.program, trace.program)

    def measure(self, trace: Trace) -> Outcome:
        """The trace's kernel, checked against the reference and timed in a child process."""
        self.require_machine()
        with closing(LocalRunner(self.program, self.target, threads=self.threads, builders=1)) as runner:
            (outcome,) = runner.measure([trace.program], None)
            return outcome

    def library(self, trace: Trace) -> KernelLibrary:
        """The schedule as a library for C. Raises TschedError (E0908, E0910, E0912) where there is none."""
        compiled = self.compile(trace)
        try:
            return self.backend.library(compiled, self.name)
        except LowerError as e:
            raise failed("cannot be called from C", str(e)) from e

    def export(self, trace: Trace, path: StrPath, form: str) -> None:
        """The file holds the schedule's library afterwards, in that form. TschedError as of `library`, and E0903."""
        write_files(self.library(trace), {Path(path): form})

    def lower(self, trace: Trace) -> LoweredKernel:
        """The kernel that the schedule makes, before code generation; for a target without a backend, that of a CPU.

        Raises TschedError (E0908) where the lowering does not take it.
        """
        try:
            return self._lowering.lower(trace.program, self.target)
        except LowerError as e:
            raise failed("cannot be lowered", str(e)) from e

    def lowered_text(self, trace: Trace, after: str | None = None) -> str:
        """What `lower` makes as text, or what there is after one of its `passes`. Raises TschedError (E0908)."""
        backend = self._lowering
        if after is None:
            return backend.text(self.lower(trace))
        try:
            return backend.text_after(trace.program, self.target, after)
        except LowerError as e:
            raise failed("cannot be lowered", str(e)) from e

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes of `lower`, in order."""
        return self._lowering.passes

    @property
    def _lowering(self) -> Backend:
        return backend_of(self.target.kind) or native()

    def compile(self, trace: Trace) -> CompiledKernel:
        """The schedule in machine code. Raises TschedError (E0908, E0910) where there is none."""
        self.require_code()
        try:
            return self.backend.compile(self.lower(trace), self.target, self.threads)
        except CompileError as e:
            raise failed("does not compile", str(e)) from e

    def _loaded(self, trace: Trace) -> LoadedKernel:
        return self.backend.load(self.compile(trace).code, trace.program, self.threads)


def _schedules_of(source: Source, home: CheckedFile) -> CheckedFile:
    """The schedules of a text, whose computes and modules are those of another file. Raises TschedError."""
    file = parse(source)
    names = Names(computes=home.computes, modules=home.modules, intrinsics=home.intrinsics, library=home.library)
    for item in file.items:
        if isinstance(item, tree.ScheduleDef):
            names.schedules[item.name] = item
    found = check_items(tuple(names.schedules.values()), names)
    if any(d.severity is Severity.ERROR for d in found):
        raise TschedError(*found)
    return replace(home, file=file, schedules=names.schedules)


def failed(how: str, why: str) -> TschedError:
    """A schedule that was asked for by name and came to nothing."""
    return TschedError(Diagnostic("E0908", f"the schedule {how}: {why}", None))


def sample(model: Model, task: str, seed: int, number: int = 0) -> Trace:
    """The first trace of a stream of draws that is not refused; TschedError with the last refusal when all are."""
    rng = stream(seed, task, f"sample/{number}")
    for _ in range(TRIES - 1):
        try:
            return model.sample(rng)
        except ScheduleRefusal:
            continue
    try:
        return model.sample(rng)
    except ScheduleRefusal as e:
        raise TschedError(refusal_diagnostic(e)) from e
