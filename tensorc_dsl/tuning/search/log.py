"""The input of a search, and its log. Its decisions are a function of the two, so that a search can be resumed."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.nameless import in_scope
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.proof.equivalence.validate import Report
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Concurrent, Outcome, RunnerLike, Status, cache_of
from tensorc_dsl.tuning.records.database import Kept, Queue
from tensorc_dsl.tuning.records.shipped import Shipped
from tensorc_dsl.tuning.records.trial import COMPARED, Phase, Trial, keys_of, program_key, subject, target_key
from tensorc_dsl.tuning.search.events import Corrected, Event, Listener, Measured, Waiting
from tensorc_dsl.tuning.search.expansion import Expander, FromText, SpaceLike, meaning_of
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.options import SearchOptions
from tensorc_dsl.tuning.search.plausible import Watch

# The input of a search.


def _unheard(_: Event) -> None:
    pass


def _of_no_modules(_: Trace) -> Mapping[str, str]:
    return {}


@frozen(kw_only=True)
class SearchInput:
    """A search looks in `space` for the fastest way to run `program` (unscheduled) on `target` with `threads` threads.

    `runner` measures its candidates, with so many `copies` of constant inputs, and `records` keeps the trials, if it is
    given. A search that is resumed goes on with the last one in the records or, without any, with the `past`. `on_event`
    hears of each event. `verify` proves a schedule or refutes it; one that it refutes does not win, and is recorded as wrong.
    `made_by` gives the versions of the modules that made a trace, for its record. `shipped` reads the records that come with
    the package, if the search learns from them. `watch` detects that the machine became slower. `expander` makes the traces
    of `space`; by default, this process does. `expand` makes the trace of a schedule of the program from a text and the
    decisions of its open draws, for one that selects among kernels, which is tried if it `holds` what schedules are to keep.
    `many` is the runner where it times several programs at once. Given the measured times and the `clock`, in seconds, the
    search is a function of the other fields.
    """

    space: SpaceLike
    program: Program
    target: Target
    options: SearchOptions
    runner: RunnerLike
    threads: int
    copies: int = 1
    records: Queue | None = None
    past: Past | None = None
    on_event: Listener = _unheard
    verify: Callable[[Trace], Report] | None = None
    made_by: Callable[[Trace], Mapping[str, str]] = _of_no_modules
    shipped: Callable[[], Shipped | Diagnostic] | None = None
    watch: Watch | None = None
    expander: Expander | None = None
    expand: FromText | None = None
    holds: Callable[[Trace], bool] = lambda _: True
    many: Concurrent | None = None
    clock: Callable[[], float] = time.perf_counter


# The recorded past of an interrupted search, so that a resumed search measures nothing twice.


@dataclass(slots=True)
class Past:
    """The outcomes and the decisions of a search by program; `run` is its name, and empty where there is none.

    `began` is the date of its first record; nothing that was recorded later was known to it.
    """

    run: str = ""
    began: float = math.inf
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    decisions: dict[str, Mapping[str, Decision]] = field(default_factory=dict[str, Mapping[str, Decision]])

    def take(self, program: Program) -> Outcome | None:
        """The recorded outcome of the program. It is returned once, since a search proposes no program twice."""
        if not self.outcomes:
            return None  # keys take milliseconds
        return next((o for key in keys_of(program) if (o := self.outcomes.pop(key, None)) is not None), None)

    def fastest(self) -> list[tuple[float, str]]:
        """(seconds, program) of the valid ones that were not taken, fastest first."""
        return sorted((o.seconds, key) for key, o in self.outcomes.items() if o.seconds is not None)


def latest(kept: Iterable[Kept], options: SearchOptions, program: Program, *, at_sizes: bool = False) -> Past:
    """The last search of the task with these options among the records of its key on a target. A search of another task that
    computes the same drew other schedules.

    A repeated measurement replaces the first. Records of format 1 do not name their search. With `at_sizes` only those count
    that have the times at each size, as those from format 4 on have.
    """
    names = in_scope(program)
    found: dict[str, Past] = {}
    last: dict[str, float] = {}
    for k in kept:
        t = k.trial
        if not isinstance(t, Trial) or not t.run or t.phase in COMPARED:
            continue
        if t.task != program.name or t.names not in ((), names):
            continue
        if at_sizes and t.seconds is not None and not t.at:
            continue
        if (t.strategy, t.seed) == (options.strategy, options.seed):
            past = found.setdefault(t.run, Past(t.run, t.created))
            past.began = min(past.began, t.created)
            past.outcomes[t.program_key] = outcome_of(t)
            past.decisions[t.program_key] = t.decisions
            last[t.run] = max(last.get(t.run, 0.0), t.created)
    return found[max(last, key=lambda run: (last[run], run))] if last else Past()


def outcome_of(t: Trial) -> Outcome:
    """The outcome in the record."""
    return Outcome(
        Status(t.status), t.seconds, t.times, t.message, t.max_error, t.build_seconds, t.run_seconds, t.censored, t.scale,
        at=t.at,
    )  # fmt: skip


# The log of a search. The decisions of a search are a function of its options and its log.


DIGITS = 4
"""Decimal places of recorded features: more than any model distinguishes."""


class Log:
    """The trials so far; each is reported and recorded. A resumed search keeps its name."""

    def __init__(self, given: SearchInput, describe: Callable[[Trace], Array], past: Past) -> None:
        self._given = given
        self.run = past.run or uuid.uuid4().hex
        self._subject = subject(given.program, given.target, given.threads)
        self._subjects = {"": self._subject}
        self._target_key = target_key(given.target, given.threads, given.copies)
        self._meaning = meaning_of(given.target)
        self._describe = describe
        if given.records is not None:
            given.records.introduce(self._subject)
        self.emit = given.on_event
        self.traces: list[Trace] = []
        self.outcomes: list[Outcome] = []
        self.best_seconds: float | None = None
        self.finalists: list[int] = []
        self.hopes: dict[int, float] = {}
        """The least time that a trial may have, where its true one is uncertain by the machine's changes of speed."""

    def measured(self, trace: Trace, outcome: Outcome, *, recorded: bool = False) -> None:
        """Add a trial: report it, and record it unless it is `recorded`."""
        number = len(self.outcomes)
        if not recorded:
            self.record([(number, trace, outcome)], "trial")
        self.add(trace, outcome)
        self.emit(Measured(number, trace, outcome, self.best_seconds))

    def add(self, trace: Trace, outcome: Outcome) -> None:
        """Add a trial that is recorded, and report nothing."""
        self.traces.append(trace)
        self.outcomes.append(outcome)
        if outcome.seconds is not None:
            self.best_seconds = min(outcome.seconds, self.best_seconds or outcome.seconds)

    def corrected(self, number: int, outcome: Outcome) -> None:
        """Replace the outcome of a trial."""
        self.record([(number, self.traces[number], outcome)], "again")
        self.outcomes[number] = outcome
        self.best_seconds = min((s for s, _ in self._valid()), default=None)
        self.emit(Corrected(number, self.traces[number], outcome, self.best_seconds))

    def ranked(self) -> list[tuple[float, int]]:
        """(seconds, number) of the valid trials, fastest first."""
        return sorted(self._valid())

    def best(self) -> int | None:
        """The number of the fastest valid trial, None without any. It takes less than to rank all."""
        return min(self._valid(), default=(0.0, None))[1]

    def _valid(self) -> Iterator[tuple[float, int]]:
        return ((o.seconds, n) for n, o in enumerate(self.outcomes) if o.seconds is not None)

    def ranked_as_measured(self) -> list[tuple[float, int]]:
        """The same by the times as they were measured: none is divided by a factor of the machine's."""
        return sorted((o.seconds * o.scale, n) for n, o in enumerate(self.outcomes) if o.seconds is not None)

    def ranked_by_hope(self) -> list[tuple[float, int]]:
        """The valid trials whose time is uncertain, by the least that it may be."""
        return sorted((hope, n) for n, hope in self.hopes.items() if self.outcomes[n].seconds is not None)

    def record(self, rows: list[tuple[int, Trace, Outcome]], phase: Phase) -> None:
        if self._given.records is not None:
            self._given.records.add_all([self._row(number, trace, outcome, phase) for number, trace, outcome in rows])
            self.tell_what_waits()

    def tell_what_waits(self) -> None:
        records = self._given.records
        unkept = None if records is None else records.untold()
        if unkept is not None:
            self.emit(Waiting(unkept))

    def _fingerprint(self, machine: str) -> str:
        """That of the machine of this name, whose facts the records have from now on."""
        if machine not in self._subjects:
            given = self._given
            self._subjects[machine] = found = subject(given.program, given.target, given.threads, machine)
            if given.records is not None:
                given.records.introduce(found)
        return self._subjects[machine].fingerprint

    def _row(self, number: int, trace: Trace, outcome: Outcome, phase: Phase) -> Trial:
        return Trial(
            task_key=self._subject.task_key,
            target_key=self._target_key,
            task=self._given.program.name,
            strategy=self._given.options.strategy,
            seed=self._given.options.seed,
            trial=number,
            status=str(outcome.status),
            decisions=trace.decisions,
            trace=trace.text,
            program_key=program_key(trace.program),
            seconds=outcome.seconds,
            times=outcome.times,
            message=outcome.message,
            max_error=outcome.max_error,
            build_seconds=outcome.build_seconds,
            run_seconds=outcome.run_seconds,
            phase=phase,
            run=self.run,
            fingerprint=self._fingerprint(outcome.machine),
            modules=self._given.made_by(trace),
            censored=outcome.censored,
            cache=cache_of(self._given.target) if outcome.times else "",
            scale=outcome.scale,
            columns=self._meaning,
            features=tuple(round(x, DIGITS) for x in self._describe(trace).tolist()),
            names=in_scope(self._given.program),
            at=outcome.at,
        )
