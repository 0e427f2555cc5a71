"""Tunes whole models: one search over all distinct tasks of a model, and a choice among the best of each in whole runs.

The searches share their trials as `tuning.search.tune` describes, each weighted by the number of its calls. They time kernels
alone. So the best few of each task are compared in runs of the model, with the kernel that the model had before, and the
records then rank them in that order: `run` and `load_model` take the first.

The draws of its graph rules are decided in the same searches: the tasks of promising alternatives have trials, too, and the
ways to join the calls are compared by whole runs with the kernels that were chosen.
"""

from __future__ import annotations

import math
import re
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Unpack

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.faces.api.kernel import Kernel
from tensorc_dsl.faces.api.model_groupings import MOST, Way, Ways, promising, record_ways
from tensorc_dsl.faces.api.model_timing import ModelCalls, roofs_of
from tensorc_dsl.faces.api.models import LoadedModel
from tensorc_dsl.faces.api.searching import roof_on, search_all
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.faces.report.progress import Standing, Together, is_shown_live, show_progress
from tensorc_dsl.faces.report.terminal import follow
from tensorc_dsl.ir.nameless import in_scope, nameless
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.processes.machine import Turns, Use, available
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.machine.roof import MEASURING, Roof
from tensorc_dsl.tuning.measure.in_context import InContext, Lineup, by_turns, compare_in_context, flusher, lineups
from tensorc_dsl.tuning.measure.local import require_memory
from tensorc_dsl.tuning.measure.outcome import seconds_of
from tensorc_dsl.tuning.records.database import Kept, Queue, Unkept, rank
from tensorc_dsl.tuning.records.trial import Trial, program_key, subject
from tensorc_dsl.tuning.search.events import Listener
from tensorc_dsl.tuning.search.log import latest
from tensorc_dsl.tuning.search.options import LAST_SEED, SearchChanges, SearchOptions
from tensorc_dsl.tuning.search.plausible import PAUSES, Resources, Yardstick
from tensorc_dsl.tuning.search.tune import TuneResult

if TYPE_CHECKING:
    from tensorc_dsl.tuning.cluster.pool import Pool

EACH = 32
"""Trials of a task, on the average, unless told otherwise."""

FINALISTS = 4
"""How many of the best of a task by their times alone are compared in the model."""

FLATTERED = 1.5
"""How many times faster a kernel may seem alone than in a model: those that are slower by more than this are no finalists."""

FAR, SIBLINGS = 0.5, 3
"""A task whose best reaches less than this share of what its siblings reach, of the roof and in the median, has more trials;
tasks that differ in sizes only are siblings, if they are so many."""

MANY = 1_000_000
"""The number of trials of a task where only time limits them: more than any has time for."""

NEGLIGIBLE = 0.01
"""The share of a run that the tasks take at most, all together, which are not searched where none is named: a search has a
reference, a comparison and proofs beside its trials."""

SPARE = 0.4
"""The share of the free memory that weights may take which kernels have prepared, each in its own layout."""

STEP = 1e-9
"""A step of the clock in seconds: no record says that a call took no time."""

WAITS = 30.0
"""Seconds that are waited, in all, for the machine to be as fast as before."""

TURNS_SECONDS = 1.5
"""How long the model is timed by turns with its kernels before, with those that it has now, and as each other way to join its
calls, for each of these."""


class TuningDisplay:
    """Shows the tuning of a model on standard error."""

    def begin(self, line: str) -> None:
        """Show the beginning of work that sends no events."""
        if sys.stderr is not None:
            follow(line, sys.stderr)

    @contextmanager
    def searching(self, names: Sequence[str], roofs: Sequence[Roof], trials: int) -> Generator[Sequence[Listener]]:
        """A context in which a search of these tasks is shown, with so many trials in all; it gives what hears of each."""
        standing = Standing()
        with show_progress(standing, sys.stderr) as follower:
            yield self._heard(Together(standing, follower, roofs, names, trials), names)

    def _heard(self, together: Together, names: Sequence[str]) -> Sequence[Listener]:
        """What hears of the searches of these tasks."""
        return [together.listener(n) for n in range(len(names))]

    def ended(self) -> bool:
        """Whether it was told meanwhile to end, without a KeyboardInterrupt."""
        return False


class _Unshown(TuningDisplay):
    def begin(self, line: str) -> None:
        pass

    @contextmanager
    def searching(self, names: Sequence[str], roofs: Sequence[Roof], trials: int) -> Generator[Sequence[Listener]]:
        yield [lambda _: None for _ in names]


@frozen
class TunedTask:
    """What became of a task of a model, which calls it so many times.

    `before` and `after` are the seconds of all its calls in a run of the model, with weights out of caches, of the schedule
    that it had and of the one that it has now, `schedule`; None where no comparison is trusted, and before if the task is of
    another way to join the calls than the model had. `changed` if these differ.
    `result` is that of its search, and `again` that of a second one, which it had if its siblings were nearer to their roofs.
    """

    task: str
    calls: int
    roof: Roof
    result: TuneResult
    again: TuneResult | None
    schedule: Trace
    changed: bool
    before: float | None
    after: float | None

    @property
    def trials(self) -> int:
        return self.result.trials + (0 if self.again is None else self.again.trials)

    @property
    def of_roof(self) -> float | None:
        """The share of the roof that the task reaches in the model; None if it is unknown."""
        return self.roof.share(self.after / self.calls) if self.after else None


@frozen
class TunedWay:
    """Another way to join the calls of a model: the draws of its rules that were decided otherwise, and the seconds of a run,
    by turns with the others; None if it was not timed, since its tasks took longer. `taken` if the model has it now."""

    draws: tuple[str, ...]
    seconds: float | None
    taken: bool


@frozen
class ModelTuning:
    """The result for a model. `before` and `after` are the seconds of a run with the schedules before and now, by turns; None
    after Ctrl-C. `tasks` are those of the model now that were searched, the ones that take the longest first.

    `kept` has the schedules of tasks that keep theirs, since they take too little of a run. `ways` are the other ways to join
    the calls whose tasks had trials, and `as_joined` the seconds of a run with the calls joined as they were, and the
    schedules now. `joins` is what joins the calls now, None without rules for that. `trials` are those of all tasks, and of
    tasks of other ways; `wrong` if a schedule among them was proved wrong.

    `trusted` is false if other work disturbed the machine through the whole comparison: then the choices of the searches
    stand. So they do where no run of the model was timed, `timed_whole` is false: workers have another target than this
    machine. `left_out` has the tasks that this machine cannot check, with the reason. `elsewhere` is the time of the other
    tasks in a run. `unkept` are records that could not be written.
    """

    model: str
    before: float | None
    after: float | None
    tasks: tuple[TunedTask, ...]
    kept: Mapping[str, Trace]
    ways: tuple[TunedWay, ...]
    as_joined: float | None
    joins: Trace | None
    trials: int
    wrong: bool
    elsewhere: float
    trusted: bool
    timed_whole: bool
    interrupted: bool
    elapsed_seconds: float
    left_out: Mapping[str, Diagnostic]
    unkept: Unkept | None

    @property
    def schedules(self) -> str:
        """The schedules that the tasks have now, each under the name of its task, behind the one that joins the calls."""
        named = [(self.model, self.joins)] if self.joins is not None else []
        named += [(t.task, t.schedule) for t in self.tasks]
        return "\n".join(replace(s, name=n).titled for n, s in (*named, *self.kept.items()))


def tune_model(
    model: LoadedModel,
    *,
    tasks: Collection[str] = (),
    progress: bool | None = None,
    display: TuningDisplay | None = None,
    records: Queue | None = None,
    on: Pool | None = None,
    **changes: Unpack[SearchChanges],
) -> ModelTuning:
    """Search for the fastest schedules of the tasks of a model, by default of all: `tune_model(model, trials=500)`.

    `trials` are those of all tasks together, by default 32 for each, or as many as there is time for with a `budget`; the
    other options are those of a search, and hold for each task. Trials are recorded in the database of the model. Without
    `tasks`, other ways to join its calls are tried, where its rules have draws that `decisions` did not fix. The model has
    the new schedules from its next call on, and its calls are joined in the way that was the fastest. Ctrl-C
    ends the searches and keeps what was found; with `resume` they go on. With `progress` the tuning is shown on standard
    error; by default it is shown on a terminal or in a notebook. A `display` takes its place.

    With a pool, `on=tensorc_dsl.connect("tls://HOST:8786")`, its workers time the trials of the tasks. Runs of the model are
    timed on this machine; where it has another target than the model, none is, and each task has what was fastest alone.

    Raises UnknownTask (E0905) for a task that the model does not have, TypeError and ValueError for wrong options, and
    TschedError if a kernel cannot be made or the database cannot be used, and E0876 if no worker has the target of a task.
    """
    total = changes.pop("trials", None)
    options = SearchOptions(trials=1 if total is None else total).but(**changes)
    names = list(dict.fromkeys(tasks)) or list(model.tasks)
    found = {name: model.tasks[name] for name in names}
    with nullcontext(records) if records is not None else Queue.at(model.records) as queue:
        shown = progress or (progress is None and is_shown_live(sys.stderr))
        display = display or (TuningDisplay() if shown else _Unshown())
        if on is not None:
            there = on.workers_now()
            for task in found.values():
                if task.target not in on.served(there):
                    raise TschedError(on.nobody(there, task.target))
        return _Tuning(model, found, options, total, queue, display, on, whole=not tasks).run()


@frozen
class _Choice:
    """A schedule that a task may have, and its record, if there is one."""

    trace: Trace
    trial: Trial | None = None

    @property
    def key(self) -> str:
        return program_key(self.trace.program)


class _Tuning:
    """The tuning of the tasks of a model under way; of a `whole` one also of the way in which its calls are joined."""

    def __init__(
        self,
        model: LoadedModel,
        tasks: Mapping[str, Task],
        options: SearchOptions,
        trials: int | None,
        queue: Queue,
        display: TuningDisplay,
        on: Pool | None,
        *,
        whole: bool,
    ) -> None:
        self._model = model
        self._on = on
        self._here = on is None or model.target == host_target(model.target.cores)
        """Whether this machine runs the model as the one does that it is tuned for."""
        self._options = options
        self._trials = trials
        self._queue = queue
        self._display = display
        self._whole = whole
        self._began = time.perf_counter()
        self._turns = Turns()
        self._left_out: dict[str, Diagnostic] = {}
        self._tasks: dict[str, Task] = {}
        for name, task in tasks.items():
            try:
                require_memory(task.program)
                self._tasks[name] = task
            except TschedError as e:
                self._left_out[name] = e.diagnostics[0]
        self._ways = Ways()
        self._present = self._ways.begin(model)
        self._calls = self._present.calls
        self._weights = dict(self._calls)
        """How often each task that is searched counts: as often as a way that has it calls it."""
        self._inputs = model.random_inputs()

    def run(self) -> ModelTuning:
        """The result."""
        many = units.counted(len(self._model.tasks), "kernel")
        self._display.begin(f"{'compiling' if self._here else 'choosing'} the {many} that the model has")
        before = self._before()
        kernels: dict[str, list[Kernel]] = {}
        share, others = dict.fromkeys(self._present.names.values(), 0.0), list[Way]()
        if self._here:
            kernels = {name: [self._model.tasks[name].replay(one.trace)] for name, one in before.items()}
            self._display.begin("timing the model")
            share = self._shares(self._present, kernels)
            if self._whole:
                for name in negligible(share):
                    self._tasks.pop(name, None)
            others = [way for way in self._others(share) if self._prepare(way, before, kernels, share)]
        order = sorted(self._tasks, key=lambda name: -share[name])
        self._display.begin(MEASURING)
        searched = {name: self._ways.tasks[name] for name in order}
        on = self._on
        roofs = roofs_of(searched) if on is None else {name: roof_on(on, task) for name, task in searched.items()}
        watch = _Calm.of(self._model, roofs.values() if self._here else (), self._turns)
        self._options, total = self._shared(len(order))
        results = self._search(order, roofs, self._options, total)
        interrupted = self._ended(results)
        again: dict[str, TuneResult] = {}
        if not interrupted and (behind := lagging(self._tasks, roofs, results)) and (more := self._more()) is not None:
            again = self._search(behind, roofs, more, None)
            interrupted = self._ended(again)
        chosen = {name: [before[name]] for name in order}
        now = dict.fromkeys(order, 0)
        compared: InContext | None = None
        timed = _Timed((self._present,))
        try:
            for name in order:
                found = self._finalists(name, 1 if interrupted else self._most())
                chosen[name] += [one for one in found if one.key != before[name].key]
                now[name] = 1 if found and found[0].key != before[name].key else 0
            if not interrupted and self._here:
                self._compile(chosen, kernels)
                now = {name: min(n, len(chosen[name]) - 1) for name, n in now.items()}
                compared = self._compare(others, kernels, watch)
                if compared.trusted:
                    self._record(chosen, compared)
                    now = {name: _fastest(compared.times[name]) for name in order}
                self._display.begin("timing the model with its schedules before and now, by turns")
                better = self._better(others, kernels, compared, now) if compared.trusted else []
                timed = self._by_turns((self._present, *better), kernels, now)
        except KeyboardInterrupt:
            interrupted = True
        trusted = compared is not None and compared.trusted
        if not trusted:
            compared = None  # times of a disturbed machine would be read as the model's
        if timed.taken is not self._present:
            self._model.adopt(timed.taken.model)
        self._model.refresh()
        calls = timed.taken.calls
        tuned: list[TunedTask] = []
        for own, name in timed.taken.names.items():
            if name not in chosen:
                continue
            one, number = chosen[name][now[name]], now[name]
            seconds = None if compared is None else compared.seconds(name)
            tuned.append(
                TunedTask(
                    task=own,
                    calls=calls[name],
                    roof=roofs[name],
                    result=results[name],
                    again=again.get(name),
                    schedule=self._in_names_of(timed.taken, own, one),
                    changed=number != 0 or name not in self._calls,
                    before=calls[name] * seconds[0] if seconds is not None and name in self._calls else None,
                    after=None if seconds is None else calls[name] * seconds[number],
                )
            )
        searches = (*results.values(), *again.values())
        elsewhere = [name for name in calls if name not in chosen]
        small = {own: name for own, name in timed.taken.names.items() if self._whole and name not in chosen}
        return ModelTuning(
            model=self._model.name,
            before=timed.before,
            after=timed.after,
            tasks=tuple(sorted(tuned, key=lambda t: -(t.after or share[timed.taken.names[t.task]]))),
            kept={own: self._in_names_of(timed.taken, own, before[name]) for own, name in small.items()},
            ways=timed.tuned(others),
            as_joined=timed.as_joined,
            joins=self._model.trace,
            trials=sum(r.trials for r in searches),
            wrong=any(r.wrong for r in searches),
            elsewhere=sum(share[n] if compared is None else calls[n] * compared.seconds(n)[0] for n in elsewhere),
            trusted=trusted,
            timed_whole=self._here,
            interrupted=interrupted,
            elapsed_seconds=time.perf_counter() - self._began,
            left_out=self._left_out,
            unkept=self._queue.unkept,
        )

    def _shared(self, count: int) -> tuple[SearchOptions, int | None]:
        """The options of each of so many searches, and the trials of all; None where only time limits them."""
        if self._trials is None and self._options.budget is not None:
            return self._options.but(trials=MANY), None
        total = EACH * count if self._trials is None else self._trials
        return (self._options.but(trials=-(-total // count)) if count else self._options), total

    def _others(self, share: Mapping[str, float]) -> list[Way]:
        """The other ways to join the calls that are worth trials, with their tasks."""
        if not self._whole or self._model.trace is None or not self._model.trace.open_draws:
            return []
        self._display.begin("looking for other ways to join the calls")
        most = max(0, min(MOST, self._lineups() // (self._most() + 1) - 1))
        found = promising(self._model, share, self._recorded, self._predicted)
        return self._ways.by_draws(found)[:most]

    def _in_names_of(self, way: Way, own: str, one: _Choice) -> Trace:
        """The schedule of a task as one of the way's task `own`, which is equal up to names."""
        if way is self._present:
            return one.trace
        trial = one.trial or _unrecorded(self._ways.tasks[way.names[own]], one.trace)
        return way.model.tasks[own].expand_recorded(trial, f"<schedule of {own}>")

    def _recorded(self, task: Task) -> float | None:
        """The time of the best recorded schedule of a task, with weights out of caches."""
        found = next(self._ranked(task, task.target_key), None)
        return None if found is None or found.trial is None else found.trial.seconds

    def _predicted(self, task: Task) -> float | None:
        """The time of the first choice for a task, by a model of the machine."""
        try:
            require_memory(task.program)
            return task.modelled(task.first_choice(self._teacher()))
        except TschedError:
            return math.inf

    def _prepare(
        self, way: Way, before: dict[str, _Choice], kernels: dict[str, list[Kernel]], share: dict[str, float]
    ) -> bool:
        """Have the tasks of another way searched, with schedules, kernels and times to begin with; false if one cannot be."""
        new = {own: name for own, name in way.names.items() if name not in kernels}
        known = {own: one for own, name in new.items() if (one := self._known(self._ways.tasks[name]))}
        had = {own: before[name].trace for own, name in way.names.items() if name in before}
        try:
            for name in new.values():
                require_memory(self._ways.tasks[name].program)
            traces = way.model.schedules_beside(had | {o: one.trace for o, one in known.items()}, self._teacher())
            begin = {name: known.get(own) or _Choice(traces[own]) for own, name in new.items()}
            kernels |= {name: [self._ways.tasks[name].replay(one.trace)] for name, one in begin.items()}
        except TschedError:
            return False
        self._tasks |= {name: self._ways.tasks[name] for name in begin}
        self._weights |= {name: way.calls[name] for name in begin}
        before |= begin
        share |= {name: seconds for name, seconds in self._shares(way, kernels).items() if name in begin}
        return True

    def _ended(self, results: Mapping[str, TuneResult]) -> bool:
        return self._display.ended() or any(r.interrupted for r in results.values())

    def _before(self) -> dict[str, _Choice]:
        """The schedules that the tasks had: when the searches began that are resumed, else now."""
        known: dict[str, _Choice] = {}
        for name, task in self._model.tasks.items():
            until = math.inf
            if self._options.resume and name in self._tasks:
                until = latest(self._kept(task, task.target_key), self._options, task.program).began
            if (found := self._known(task, until)) is not None:
                known[name] = found
        others = self._model.schedules_beside({name: one.trace for name, one in known.items()}, self._teacher())
        return {name: known.get(name) or _Choice(trace) for name, trace in others.items()}

    def _teacher(self) -> Path | None:
        """The database that teaches first choices."""
        records = self._model.records
        return records if records is not None and records.exists() else None

    def _known(self, task: Task, until: float = math.inf) -> _Choice | None:
        """The best recorded schedule of a task, by times with weights out of caches if there are any."""
        return next(chain.from_iterable(self._ranked(task, key, until) for key in task.target_keys), None)

    def _kept(self, task: Task, key: str) -> Iterator[Kept]:
        return self._queue.kept(program_key(task.program), key)

    def _ranked(self, task: Task, key: str, until: float = math.inf) -> Iterator[_Choice]:
        """The schedules of a task that were recorded with a key before a date, fastest first; those that do not fit today, or
        do not keep what the task's are to keep, are none."""
        kept = [k for k in self._kept(task, key) if not isinstance(k.trial, Trial) or k.trial.created < until]
        trials = {k.row: k.trial for k in kept if isinstance(k.trial, Trial)}
        for row in rank(kept).rows:
            with suppress(TschedError):
                trace = task.expand_recorded(trials[row], f"<trial {trials[row].trial} of {task.name}>")
                if task.holds(trace):
                    yield _Choice(trace, trials[row])

    def _calls_of(self, way: Way, kernels: Mapping[str, Sequence[Kernel]], choices: Mapping[str, int]) -> ModelCalls:
        """The calls of the model in one way, with one choice for each task, the first where there is none."""
        chosen = {own: kernels[name][choices.get(name, 0)] for own, name in way.names.items()}
        return ModelCalls(way.model, chosen, self._inputs)

    def _shares(self, way: Way, kernels: Mapping[str, Sequence[Kernel]]) -> dict[str, float]:
        """The seconds of all calls of each task in a run of the model in one way, with the first choices."""
        calls = self._calls_of(way, kernels, {})
        out = dict.fromkeys(way.names.values(), 0.0)
        with self._turns.use(Use.TIMING):
            calls()  # the first call of each kernel also takes memory
            for task, seconds in zip(calls.tasks, calls.times(), strict=True):
                out[way.names[task]] += seconds
        return out

    def _search(
        self, names: Sequence[str], roofs: Mapping[str, Roof], options: SearchOptions, total: int | None
    ) -> dict[str, TuneResult]:
        """The results of a search of these tasks, in which they share their trials."""
        if not names:
            return {}
        some = [roofs[name] for name in names]
        with self._display.searching(names, some, options.trials * len(names) if total is None else total) as listeners:
            plans = [
                self._tasks[name].plan(tell, float(self._weights[name]), roof)
                for name, tell, roof in zip(names, listeners, some, strict=True)
            ]
            return dict(
                zip(names, search_all(plans, options, records=self._queue, trials=total, on=self._on), strict=True)
            )

    def _more(self) -> SearchOptions | None:
        """The options of the second search of some tasks; None if there is no time for one. Another seed draws others."""
        options = self._options.but(seed=(self._options.seed + 1) % (LAST_SEED + 1))
        if options.budget is None:
            return options
        left = options.budget - (time.perf_counter() - self._began)
        return options.but(budget=left) if left > 0 else None

    def _most(self) -> int:
        """How many schedules of a task are compared."""
        return max(1, min(FINALISTS, self._lineups()))

    def _lineups(self) -> int:
        """How many runs with kernels of their own there is memory for: each kernel has prepared weights of its own."""
        weights = sum(w.nbytes for w in self._model.weights.values())
        return int(SPARE * available() / weights) if weights else MANY

    def _finalists(self, name: str, most: int) -> list[_Choice]:
        """The recorded schedules of a task that are about as fast alone as the fastest, which is the first."""
        out: list[_Choice] = []
        for one in self._ranked(self._tasks[name], self._tasks[name].target_key):
            assert one.trial is not None and one.trial.seconds is not None
            least = min((o.trial.seconds or 0.0 for o in out if o.trial is not None), default=math.inf)
            if len(out) == most or one.trial.seconds > FLATTERED * least:
                break
            out.append(one)
        return out

    def _compile(self, chosen: dict[str, list[_Choice]], kernels: dict[str, list[Kernel]]) -> None:
        """Compile what is compared with the kernels before; what has no kernel is no choice."""
        self._display.begin(f"compiling the best of {units.counted(len(chosen), 'task')}")
        for name, some in chosen.items():
            for one in some[1:]:
                try:
                    kernels[name].append(self._tasks[name].replay(one.trace))
                except TschedError:
                    some.remove(one)

    def _compare(self, others: Sequence[Way], kernels: Mapping[str, Sequence[Kernel]], watch: _Calm) -> InContext:
        """The times of all choices in runs of the model. Tasks that another way has in common have their first one there."""
        self._display.begin("comparing the best of each task in runs of the model")
        flush = flusher(self._model.tasks.native)
        runs: list[Lineup] = []
        for way in (self._present, *others):
            own = self._calls if way is self._present else [n for n in way.names.values() if n not in self._calls]
            for choices in lineups({name: len(kernels[name]) for name in own}):
                choices = dict.fromkeys(way.names.values(), 0) | choices
                calls = self._calls_of(way, kernels, choices)
                runs.append(Lineup([way.names[task] for task in calls.tasks], choices, calls.times))
        return compare_in_context(runs, flush, watch.slower, turn=lambda: self._turns.use(Use.TIMING))

    def _better(
        self, others: Sequence[Way], kernels: Mapping[str, object], compared: InContext, now: Mapping[str, int]
    ) -> list[Way]:
        """The ways with what saves time by the sums of calls: of each other way, and of all."""

        def time(name: str) -> float | None:
            return compared.seconds(name)[now.get(name, 0)] if name in compared.times else None

        found = self._ways.winners(others, time)
        return [way for way in found if {*way.names.values()} <= {*kernels}]

    def _record(self, chosen: Mapping[str, Sequence[_Choice]], compared: InContext) -> None:
        """Record the times in runs of the model of all tasks with a choice. The rows are one comparison."""
        run = uuid.uuid4().hex
        rows: list[Trial] = []
        for name, some in chosen.items():
            for one, taken in zip(some, compared.times[name], strict=True):
                if len(some) > 1:
                    times = _recordable(taken)
                    trial = one.trial or _unrecorded(self._tasks[name], one.trace)
                    rows.append(
                        replace(
                            trial, phase="context", run=run, created=0.0, target_key=self._tasks[name].target_key,
                            seconds=seconds_of(times), times=times, scale=1.0, censored=False, cache="cold", columns="",
                            features=(), build_seconds=0.0, run_seconds=sum(times),
                        )
                    )  # fmt: skip
        self._queue.add_all(rows)

    def _by_turns(self, ways: Sequence[Way], kernels: Mapping[str, Sequence[Kernel]], now: Mapping[str, int]) -> _Timed:
        """The model with the schedules before, and in these ways with those that it has now."""
        runs = [self._calls_of(self._present, kernels, {}), *(self._calls_of(way, kernels, now) for way in ways)]
        with self._turns.use(Use.TIMING):
            before, *times = by_turns(runs, TURNS_SECONDS * len(runs))
        taken = record_ways(self._queue, ways, times, uuid.uuid4().hex) if len(ways) > 1 else 0
        return _Timed(tuple(ways), taken, before, tuple(times))


@frozen
class _Timed:
    """The ways of a model that were timed by turns, the present one first, with the seconds of each turn, and those with the
    schedules before; no times after Ctrl-C. The one with the `number` is taken."""

    ways: tuple[Way, ...]
    number: int = 0
    first: tuple[float, ...] = ()
    times: tuple[tuple[float, ...], ...] = ()

    @property
    def taken(self) -> Way:
        return self.ways[self.number]

    @property
    def before(self) -> float | None:
        return seconds_of(self.first) if self.times else None

    @property
    def as_joined(self) -> float | None:
        return seconds_of(self.times[0]) if self.times else None

    @property
    def after(self) -> float | None:
        return seconds_of(self.times[self.number]) if self.times else None

    def tuned(self, others: Sequence[Way]) -> tuple[TunedWay, ...]:
        """What became of the ways that were timed, and of others of which nothing was."""
        out = [
            TunedWay(way.draws, seconds_of(times), n == self.number)
            for n, (way, times) in enumerate(zip(self.ways, self.times, strict=False))
            if n
        ]
        timed = {e for way in self.ways for e in way.changed}
        out += [TunedWay(way.draws, None, False) for way in others if timed.isdisjoint(way.changed)]
        return tuple(out)


def _recordable(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(STEP, s) for s in times)


def _fastest(times: Sequence[Sequence[float]]) -> int:
    """The choice that `rank` has first among the rows of a comparison: of equal ones the first."""
    seconds = [seconds_of(_recordable(taken)) for taken in times]
    return seconds.index(min(seconds))


def _unrecorded(task: Task, trace: Trace) -> Trial:
    """The record of a schedule that no search has tried."""
    about = subject(task.program, task.target, task.threads)
    return Trial(
        task_key=about.task_key, target_key=task.target_key, task=task.name, strategy="", seed=0,
        trial=0, status="ok", decisions=trace.decisions, trace=trace.text, program_key=program_key(trace.program),
        fingerprint=about.fingerprint, modules=task.made_by(trace), names=in_scope(task.program), seconds=1.0,
    )  # fmt: skip


def negligible(seconds: Mapping[str, float]) -> list[str]:
    """The tasks that take the least of a run, as many as take less than `NEGLIGIBLE` of it together."""
    least = sorted(seconds, key=lambda name: seconds[name])
    sums = accumulate(seconds[name] for name in least)
    return [name for name, taken in zip(least, sums, strict=True) if taken < NEGLIGIBLE * sum(seconds.values())]


def lagging(tasks: Mapping[str, Task], roofs: Mapping[str, Roof], results: Mapping[str, TuneResult]) -> list[str]:
    """The tasks whose best reaches far less of its roof than those of tasks that differ in their sizes only."""
    families: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, result in results.items():
        share = None if result.best_seconds is None else roofs[name].share(result.best_seconds)
        families[_structure(tasks[name])][name] = share or 0.0
    out: list[str] = []
    for shares in families.values():
        for name, share in shares.items():
            others = [s for n, s in shares.items() if n != name]
            if len(others) >= SIBLINGS - 1 and share < FAR * median(others):
                out.append(name)
    return out


def _structure(task: Task) -> str:
    """The text of a task's program without names and numbers."""
    return re.sub(r"\d+", "#", format_program(nameless(task.program)))


@dataclass(slots=True)
class _Calm:
    """Whether the machine is as fast as before the searches, by its memory and by what it computes."""

    yardsticks: Sequence[Yardstick]
    left: float = WAITS
    """Seconds that may still be waited."""

    @staticmethod
    def of(model: LoadedModel, roofs: Iterable[Roof], turns: Turns) -> _Calm:
        """By the task that moves the most; a model without tasks that leave the caches has no yardsticks."""
        largest = max(roofs, key=lambda r: r.bytes_, default=None)
        if largest is None:
            return _Calm(())
        target = model.tasks.native
        found = Resources.of(target, target.cores, largest, turns)
        out = [Yardstick(measure) for measure in (found.memory, found.computing) if measure is not None]
        for one in out:
            one.begin()
        return _Calm(out)

    def slower(self) -> float:
        """How many times slower the machine is, 1 if it is not; it is waited for, for a while in all."""
        pauses = iter(PAUSES)
        while (worst := max((self._factor(y) for y in self.yardsticks), default=1.0)) > 1.0 and self.left > 0.0:
            pause = min(next(pauses, PAUSES[-1]), self.left)
            time.sleep(pause)
            self.left -= pause
        return worst

    @staticmethod
    def _factor(one: Yardstick) -> float:
        one.settle(one.factor())
        return one.scale
