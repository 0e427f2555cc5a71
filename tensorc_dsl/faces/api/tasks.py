"""Files and their tasks by name, for one machine; and operations on a task: its program and the space over it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tensorc_dsl.backend.once import lowering_for
from tensorc_dsl.backend.protocol import (
    Backend,
    CompiledKernel,
    KernelLibrary,
    LoweredKernel,
    Registers,
    require_backend,
)
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, render
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.faces.api.kernel import (
    Given,
    Kernel,
    Known,
    Origin,
    chosen_soon,
    compiled,
    cost_text,
    describe,
    emulated,
    failed,
    failing_at,
    known,
    loaded,
    lowered,
    lowered_text,
    recorded_schedule,
    require_generator,
    require_machine,
    require_registers,
    untuned,
    viewed,
)
from tensorc_dsl.faces.api.rounding import is_kept, require_order, require_rows, verify_task_bits, verify_task_rows
from tensorc_dsl.faces.api.schedules import Promise, TaskData, require_draws, written
from tensorc_dsl.faces.api.searching import (
    Insight,
    NoValidCandidate,
    Plan,
    SearchResult,
    WrongSchedule,
    insight_of_study,
    recorded_trials,
    search_all,
    search_display,
    studied,
)
from tensorc_dsl.faces.packages import Disk, Files, Resolver
from tensorc_dsl.faces.report.files import no_such_task, read_source
from tensorc_dsl.interp.space import NATIVE, Space, opened, task_space, versions
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.sizes import Sizes, conditions_of
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.equivalence.bits import in_order
from tensorc_dsl.proof.equivalence.validate import Report, validate
from tensorc_dsl.reference.work import mean_flops, sizing
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.kept import Kept
from tensorc_dsl.schedule.trace.trace import Model, Trace
from tensorc_dsl.syntax import tree
from tensorc_dsl.tuning.cluster.ssh import Board
from tensorc_dsl.tuning.machine.host import host_target, machine_target
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.emulation import Emulated
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.records.database import Database, Queue
from tensorc_dsl.tuning.search.events import Listener
from tensorc_dsl.tuning.search.expansion import nearest, stream
from tensorc_dsl.tuning.search.options import SearchChanges, SearchOptions
from tensorc_dsl.tuning.search.space import modelled
from tensorc_dsl.tuning.search.tune import TuneResult

if TYPE_CHECKING:
    from tensorc_dsl.tuning.cluster.pool import Pool

# Writes ahead-of-time output to files: all of them or none, each as a whole.


def write_files(library: KernelLibrary, outputs: Mapping[Output, str]) -> None:
    """Write each output's form of the library. Raises TschedError, in most cases before anything is written."""
    for output in outputs:
        output.check()
    made = {output: library.make(form) for output, form in outputs.items()}
    for output, data in made.items():
        output.write(data)


StrPath = str | os.PathLike[str]

GIVEN = Given()


def warn_of(diagnostic: Diagnostic) -> None:
    """Issue the diagnostic as a Python warning."""
    warnings.warn(render(diagnostic), stacklevel=3)


class Task(TaskData):
    """One task on one machine. `program` is its unscheduled program; `space` the space or schedule for it.

    `model` is the model that schedules are drawn from: the space, or the space with handlers.
    """

    @property
    def backend(self) -> Backend:
        """The backend for the target. Raises TschedError (E0910) if there is none."""
        return require_backend(self.target.kind, self.name)

    def require_machine(self) -> None:
        """Raises TschedError (E0910, E0914, E0915, E0916) if kernels for the target cannot run on this machine."""
        require_machine(self.target, self.name)

    @property
    def flops(self) -> int:
        """The operations of one call; with open dimensions, the mean over the timed sizes."""
        return mean_flops(self.program)

    @property
    def timed_at(self) -> tuple[Sizes, ...]:
        """The sizes of the open dimensions at which kernels are timed, given by the task or by default; a single empty one
        without open dimensions."""
        return sizing(self.program).timed

    def check(self) -> Trace:
        """A schedule that can be applied and lowered. Raises TschedError with the reason if none is found."""
        trace = self.sample(0)
        self.lower(trace)
        return trace

    def drawn_from(self, model: Model) -> Task:
        """The same task with another model, for instance `handlers.condition(task.model, {"ks": (64, 16)})`."""
        return Task(self.name, self.space, self._checked, model, self._words, self._passing, self.keeps)

    def over_space(self, space: Space) -> Task:
        """The same task with another space, without handlers."""
        return Task(self.name, space, self._checked, words=self._words, passing=self._passing, keeps=self.keeps)

    def over(self, trace: StrPath) -> Task:
        """The same task with the schedule in a file as its space: only its open draws are drawn or searched."""
        return self.over_space(self.frozen_space(read_source(trace)))

    def opened(self, names: Collection[str]) -> Task:
        """The same task with the draws of these names unpinned in its schedule; without handlers.

        Raises TschedError (E0559) for a draw that no step of the schedule depends on.
        """
        if not isinstance(self.space.definition, tree.ScheduleDef):
            return self
        space = replace(self.space, definition=opened(self.space.definition, names))
        return self.over_space(space)

    def require_draws(self, names: Sequence[str], opened: Sequence[str] = ()) -> None:
        """Raises TschedError if none of some schedules of the task has a draw of one of the names (E0556), or an unpinned
        draw of one of `opened` (E0560).
        """
        require_draws(self.model, self.name, names, opened)

    def frozen(self, trace: StrPath | Trace) -> Trace:
        """The trace in a file, expanded for this task; open draws are drawn with seed 0. So is a trace of another task.

        Raises TschedError if the file is wrong, it has no schedule for the task's compute, or a step does not apply.
        """
        if isinstance(trace, Trace):
            return trace if self._has(trace) else self.expand(Source(f"<trace of {trace.program.name}>", trace.text))
        return self.expand(read_source(trace))

    def _has(self, trace: Trace) -> bool:
        """Whether the trace is of this task: its program has the name and the arrays of the task's, which no step changes."""
        own = self.program
        return (own.name, own.params, self.space.compute) == (trace.program.name, trace.program.params, trace.compute)

    def search(
        self,
        options: SearchOptions | None = None,
        *,
        records: StrPath | Queue | None = None,
        on_event: Listener | None = None,
        on: Pool | Board | None = None,
        **changes: Unpack[SearchChanges],
    ) -> SearchResult:
        """The result of a search: schedules are checked and timed in a child process, and recorded in the database.

        `task.search(trials=64, seed=1)` is `task.search(SearchOptions(trials=64, seed=1))`; named arguments replace those
        in the options. A queue as `records` stays open. The result has in `wrong` those of the best schedules that are
        proved wrong. With a pool, `on=tensorc_dsl.connect("tls://HOST:8786")`, its workers measure, which have the task's
        target; with `on=tensorc_dsl.Board("ssh://HOST")` a board does. Raises TschedError (E0910, E0914) if no code can be
        made for the target, or it cannot run here, E0878 and E0879 for a pool that no worker is left of, and E0883 and E0884
        for a board that cannot run kernels for the target, or is lost.
        """
        if on is None:
            self.require_machine()
        elif isinstance(on, Board):
            on.require(self.target, self.name)
        asked = (options or SearchOptions()).but(**changes)
        where = records if records is None or isinstance(records, Queue) else Path(records)
        (result,) = search_all([self.plan(on_event)], asked, records=where, on=on)
        return SearchResult.of(result, self.model, self.name)

    def plan(self, on_event: Listener | None = None, weight: float = 1.0, roof: Roof | None = None) -> Plan:
        """The input of a search over the task, for `faces.api.searching.search_all`."""
        bits_of = None if self.keeps is None else self.keeps.bits_of

        def expand(text: str, decisions: Mapping[str, Decision]) -> Trace:
            space = self.frozen_space(Source("<kernels>", text))
            return space.expand(nearest(decisions, stream(0, self.name, "kernels")))

        return Plan(
            self.model,
            self.program,
            self.target,
            self.made_by,
            on_event,
            weight,
            roof,
            self.copies,
            bits_of,
            expand,
            self.holds,
        )

    def made_by(self, trace: Trace) -> Mapping[str, str]:
        """The versions of the space and of the modules that made a trace."""
        return versions(self.space, trace.modules)

    def tune(
        self,
        options: SearchOptions | None = None,
        *,
        records: StrPath | None = None,
        progress: bool | None = None,
        on: Pool | Board | None = None,
        **changes: Unpack[SearchChanges],
    ) -> Kernel:
        """The fastest kernel that a search finds, `task.tune(trials=64)`. Raises NoValidCandidate if there is none.

        Options are those of `search`. Trials are recorded in the file `records`, by default the one in the user's data
        folder. With `progress` the search is shown on standard error; by default it is shown on a
        terminal or in a notebook. A schedule that is proved wrong is a bug, which a RuntimeWarning reports.
        """
        self.require_machine()
        with (
            Queue.at(Path(records) if records else None) as queue,
            search_display(self.program, self.target, progress) as shown,
        ):
            result = self.search(options, records=queue, on_event=shown, on=on, **changes)
        if result.unkept is not None:
            warnings.warn(str(result.unkept), RuntimeWarning, stacklevel=2)
        for trace, report in result.wrong:
            warnings.warn(f"{WrongSchedule(trace, report.diagnostic)}", RuntimeWarning, stacklevel=2)
        if result.best is None:
            raise NoValidCandidate(result)
        return self._kernel(result.best, result.best_seconds, result)

    def replay(self, trace: StrPath | Trace) -> Kernel:
        """The kernel of a frozen schedule. Raises TschedError if it does not fit this task or machine."""
        self.require_machine()
        return self._kernel(self.frozen(trace))

    def recorded(
        self, records: StrPath | None = None, *, on_warning: Callable[[Diagnostic], None] = warn_of
    ) -> Trace | None:
        """The best schedule in the database for this task on this machine; None if there is none in it.

        Records that no search can have written, or with a schedule that does not fit, are skipped with a warning (W0701). A
        record made by other versions of modules gets a warning, too (W0703). The database is only read. Raises TschedError
        (E0701, E0702, E0705, E0708), and E0711 if there are no records where `records` says.
        """
        database = Database.reading() if records is None else Database.required(Path(records))
        if database is None:
            return None
        with database:
            found = recorded_schedule(self, database, on_warning)
        return None if found is None else found.trace

    def known(self, records: StrPath | None = None, *, on_warning: Callable[[Diagnostic], None] = warn_of) -> Known:
        """The best schedule that is known for this machine, with its origin: recorded, predicted from records of other tasks,
        or drawn. The database is only read. Raises TschedError as `recorded`.
        """
        return known(self, None if records is None else Path(records), on_warning)

    def first_choice(self, records: StrPath | None = None) -> Trace:
        """The schedule that a model of the machine says is the fastest of some draws and the best schedules of other tasks.

        It takes about a second, and is worse than what `known` predicts where many records teach. The draw with seed 0 where
        there is no model of the machine. The database is only read. Raises TschedError as `known`.
        """
        return chosen_soon(self, None if records is None else Path(records))

    def modelled(self, trace: Trace) -> float | None:
        """The cycles of a schedule by a model of the machine; infinite if it cannot run, None where there is no model."""
        return modelled(trace.program, sizing(self.program).timed[-1], self.target)

    def best(self, records: StrPath | None = None) -> Kernel:
        """The kernel of the best schedule that is known, see `known`; its `origin` says where the schedule is from.

        A schedule that is not recorded gets a warning (W0705).
        """
        self.require_machine()
        found = self.known(records)
        if (warning := untuned(self, found.origin)) is not None:
            warn_of(warning)
        return self._kernel(found.trace, origin=found.origin)

    def insight(self, records: StrPath | None = None, *, on_warning: Callable[[Diagnostic], None] = warn_of) -> Insight:
        """What the recorded trials of this task on this machine say about its draws. The database is only read.

        Records that cannot be read are skipped with a warning (W0701). Raises TschedError (E0712) if the trials are too few,
        and E0701, E0702, E0705 or E0708 if there is no database that can be read.
        """
        with Database.required(None if records is None else Path(records)) as database:
            return insight_of_study(studied(self.model, self.name, recorded_trials(self, database, on_warning)))

    def verify(self, trace: Trace) -> Report:
        """Whether the schedule's program computes what the task does, proved from the two programs alone."""
        return validate(self.program, self.frozen(trace).program)

    def verify_bits(self, trace: Trace, of: Trace | None = None) -> Report:
        """Whether the schedule gives the same bits as another one, or as the compute's own order: `docs/verify.md`."""
        return verify_task_bits(self, self.frozen(trace), None if of is None else self.frozen(of))

    def verify_rows(self, trace: Trace, dim: str) -> Report:
        """Whether each row of the results has the same bits for every size of the open dimension `dim`."""
        return verify_task_rows(self, self.frozen(trace), dim)

    def holds(self, trace: Trace) -> bool:
        """Whether a schedule is proved to keep what those of the task are to keep; see `keeping`."""
        return self.keeps is None or is_kept(self, self.keeps, self.frozen(trace))

    def keeping(self, *, bits_of: StrPath | Trace | None = None, bits: bool = False, rows: str | None = None) -> Task:
        """The same task, of which only schedules are drawn that give the bits of the compute's own order if `bits`, those of
        the schedule `bits_of` if there is one, and the same ones for a row whatever the size `rows` is. Handlers are lost.

        Raises TschedError (E0810) for a schedule that leaves its order open, E0811 for a dimension that counts no rows.
        """
        if rows is not None:
            require_rows(self.program, rows)
        of = None if bits_of is None else self.frozen(bits_of)
        named = None if of is None else require_order(self, of)
        whole = named is None and (bits or of is not None)
        words = ["the bits of the compute's own order"] if whole else []
        words += [f"the bits of the schedule `{of.name}`"] if of is not None else []
        words += [f"the bits of a row for every {rows}"] if rows is not None else []
        space = replace(self.space, in_order=True) if whole else self.space
        model = space if named is None and rows is None else Kept(space, named, rows)
        promise = Promise(in_order(self.program) if whole else named, rows, " and ".join(words))
        return Task(self.name, space, self._checked, model, self._words, self._passing, promise)

    def measure(self, trace: Trace) -> Outcome:
        """The outcome of the trace's kernel, checked against the reference and timed in a child process."""
        self.require_machine()
        with closing(LocalRunner(self.program, self.target, threads=self.threads, builders=1)) as runner:
            (outcome,) = runner.measure([self.frozen(trace).program], None)
            return outcome

    def compare(self, traces: Sequence[Trace]) -> list[Outcome]:
        """The outcomes of the traces' kernels, checked against the reference and timed by turns in a child process."""
        self.require_machine()
        with closing(LocalRunner(self.program, self.target, threads=self.threads)) as runner:
            return runner.compare([self.frozen(trace).program for trace in traces])

    def emulate(self, trace: Trace, registers: Registers | None = None) -> Emulated:
        """What the trace's kernel does, run on this machine's CPU thread by thread: for targets of other kinds, such as GPUs.

        Three orders of threads are tried. A fault names the statement and the threads: a result that differs from the
        reference, threads that race or come to different barriers, an access that is out of bounds. Raises TschedError
        (E0908, E0910, E0915, E0920, E0921) if the kernel cannot be emulated. `cycles` are of a model of time, which takes
        what is given of their code, as `require_registers` gives it.
        """
        with failing_at(self.definition):
            return emulated(self.program, self.frozen(trace).program, self.target, registers or Registers())

    def require_registers(self, trace: Trace) -> Registers:
        """The code of the trace's kernels, with the registers of a thread by an assembler of the target, if it is here.

        Raises TschedError (E0908) if it says that registers do not suffice, and E0910 or E0915 if there is no code.
        """
        with failing_at(self.definition):
            return require_registers(self.frozen(trace).program, self.target)

    def library(self, trace: Trace, origin: Origin = GIVEN) -> KernelLibrary:
        """The schedule as a library for C, which says where the schedule is from.

        Raises TschedError (E0908, E0910, E0912) if it cannot be made.
        """
        compiled = self.compile(trace)
        try:
            if self.target.starts_grids and (told := conditions_of(self.program.dims)):
                raise LowerError(f"its functions would not check that {format_expr(told[0])}")
            return self.backend.library(compiled, self.name, describe(origin))
        except LowerError as e:
            raise failed("cannot be called from C", str(e), self.definition) from e

    def export(self, trace: Trace, path: StrPath, form: str) -> None:
        """Write the schedule's library to a file, in that form. Raises TschedError as `library`, and E0903."""
        executable = form in self.backend.forms and self.backend.forms[form].executable
        write_files(self.library(trace), {Output(Path(path), typed=True, executable=executable): form})

    def lower(self, trace: Trace) -> LoweredKernel:
        """The schedule's kernel before code generation; for a target without a backend, that of a CPU.

        Raises TschedError (E0908) if the program cannot be lowered.
        """
        with failing_at(self.definition):
            return lowered(self.frozen(trace).program, self.target)

    def lowered_text(self, trace: Trace, after: str | None = None) -> str:
        """The text of `lower`, or that of the program after one of its `passes`. Raises TschedError (E0908)."""
        with failing_at(self.definition):
            return lowered_text(self.frozen(trace).program, self.target, after)

    def cost(self, trace: Trace) -> str:
        """What bounds the schedule by the model of time, for people. Raises TschedError (E0908)."""
        with failing_at(self.definition):
            return cost_text(self.program, self.frozen(trace).program, self.target)

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes of `lower`, in order."""
        return lowering_for(self.target).passes

    def compile(self, trace: Trace) -> CompiledKernel:
        """The schedule in machine code. Raises TschedError (E0908, E0910) if that fails."""
        require_generator(self.target, self.name)
        with failing_at(self.definition):
            return compiled(self.frozen(trace).program, self.target, self.threads)

    def view(self, trace: Trace, stage: str) -> str:
        """The text of a stage of the machine code, as `ptx`. Raises TschedError (E0908, E0910, E0919) if there is none."""
        with failing_at(self.definition):
            return viewed(self.compile(trace), stage)

    def _kernel(
        self,
        trace: Trace,
        seconds: float | None = None,
        search: TuneResult | None = None,
        origin: Origin | None = None,
    ) -> Kernel:
        require_generator(self.target, self.name)
        with failing_at(self.definition):
            native = loaded(trace.program, self.target, self.threads)
        return Kernel(
            native, self.name, self.target, trace, seconds, search, origin, lambda path: written(self, trace, path)
        )


OF_KIND = f"{NATIVE}-"
"""What the name of a kind comes after in the name of the machine's own target of that kind, `native-cuda`."""


class UnknownTask(TschedError, KeyError):
    """A file has no task of that name (E0905). It is bad input, and the KeyError of a mapping."""

    __str__ = TschedError.__str__


def load(
    path: StrPath,
    *,
    threads: int | None = None,
    include: Sequence[StrPath] = (),
    target: str | None = None,
    mcpu: str | None = None,
    files: Files | None = None,
    native: Target | None = None,
) -> TaskFile:
    """The tasks of a `.tsched` file, for this machine; kernels use `threads` threads, by default one per processor.

    Files that it uses are looked for in the folders `include` too. `target` replaces the targets of its spaces: by one of
    the file, by its name, by this machine, "native", or by its GPU, "native-cuda". `mcpu` is a CPU, by LLVM's name, that
    replaces the target's CPU. `native` stands for this machine where kernels run elsewhere, as `target` of a pool does.
    Files are read through `files`, by default from the disk. Raises TschedError with all errors in the file.
    """
    _require_folders(include)
    files = files or Disk()
    checked = load_source(files.read(path), Resolver(path, include, files))
    return _tasks_of(checked, threads, include, target, mcpu, native)


def loads(
    text: str,
    *,
    name: str = "<text>",
    threads: int | None = None,
    include: Sequence[StrPath] = (),
    target: str | None = None,
    mcpu: str | None = None,
    native: Target | None = None,
) -> TaskFile:
    """As `load`, for a text. Its name in messages is `name`; files that it uses are looked for as for a file of that name."""
    _require_folders(include)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the text of a file is a str, not {type(text).__name__}")
    source = Source.of(text.encode(), name)
    checked = load_source(source, Resolver(name, include))
    return _tasks_of(checked, threads, include, target, mcpu, native)


def _tasks_of(
    checked: CheckedFile,
    threads: int | None,
    include: Sequence[StrPath],
    target: str | None,
    mcpu: str | None,
    native: Target | None,
) -> TaskFile:
    words = _words(threads, include, target, mcpu)
    if native is not None and target is not None and target.startswith(OF_KIND):
        target = NATIVE
    return TaskFile(checked, native or host_target(threads), target, mcpu, words)


def _words(threads: int | None, include: Sequence[StrPath], target: str | None, mcpu: str | None) -> tuple[str, ...]:
    """The options of a command that loads a file in the same way."""
    named = (("--target", target), ("--mcpu", mcpu), ("--threads", threads), *(("-I", fspath(i)) for i in include))
    return tuple(str(word) for option, value in named if value is not None for word in (option, value))


def _require_folders(include: Sequence[StrPath]) -> None:
    """Raises TypeError for one folder in place of several: of a text, each letter would be one."""
    if isinstance(include, str | bytes | PathLike):
        raise TypeError(f"include is a list of folders: include=[{include!r}]")


class TaskFile(Mapping[str, "Task"]):
    """The tasks of one file by name, in the order of the file."""

    def __init__(
        self,
        checked: CheckedFile,
        native: Target,
        target: str | None = None,
        mcpu: str | None = None,
        words: tuple[str, ...] = (),
        passing: int = 0,
        same_bits: bool = False,
    ) -> None:
        self._passing = passing
        self._same_bits = same_bits
        self.checked = checked
        self.native = native
        self._target = target
        self._mcpu = mcpu
        self._words = words

    def of(self, checked: CheckedFile) -> TaskFile:
        """The tasks of another file on the same machine."""
        return TaskFile(checked, self.native, self._target, self._mcpu, self._words, self._passing, self._same_bits)

    def on(self, native: Target) -> TaskFile:
        """The same tasks with another target in place of this machine's."""
        return TaskFile(self.checked, native, self._target, self._mcpu, self._words, self._passing, self._same_bits)

    def __getitem__(self, name: str) -> Task:
        """The task of that name. Raises UnknownTask with the nearest name if there is none, TschedError (E0910, E0915) for
        a CPU that its target cannot have, and E0918 if it is to be the GPU of this machine, which cannot be used."""
        if name not in self.checked.tasks:
            known = list(self.checked.tasks)
            raise UnknownTask(no_such_task(name, known, self.checked.source.name))
        native, chosen = self.native, self._target
        if (
            chosen is not None
            and chosen.startswith(OF_KIND)
            and (found := machine_target(chosen.removeprefix(OF_KIND)))
        ):
            native, chosen = found, NATIVE
        space = task_space(self.checked, name, native, chosen)
        if self._mcpu is not None:
            backend = require_backend(space.target.kind, name)
            space = replace(space, target=backend.with_cpu(space.target, self._mcpu))
        found = Task(name, space, self.checked, words=self._words, passing=self._passing)
        return found.keeping(bits=True) if self._same_bits else found

    def __iter__(self) -> Iterator[str]:
        return map(str, self.checked.tasks)

    def __len__(self) -> int:
        return len(self.checked.tasks)

    def __repr__(self) -> str:
        return f"TaskFile({Path(self.checked.source.name).name}: {', '.join(self) or 'no tasks'})"
