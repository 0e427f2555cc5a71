"""The log of a search. The decisions of a search are a function of its options and its log."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.measure.timing import cache_of
from tensorc_dsl.records.keys import program_key, subject, target_key
from tensorc_dsl.records.trial import Phase, Trial
from tensorc_dsl.search.events import Corrected, Measured, Waiting
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.input import SearchInput
from tensorc_dsl.search.loop_features import MEANING
from tensorc_dsl.search.past import Past
from tensorc_dsl.trace.trace import Trace

DIGITS = 4
"""Decimal places of recorded features: more than any model distinguishes."""


class Log:
    """The trials so far; each is reported and recorded. A resumed search keeps its name."""

    def __init__(self, given: SearchInput, describe: Callable[[Trace], Array], past: Past) -> None:
        self._given = given
        self.run = past.run or uuid.uuid4().hex
        self._subject = subject(given.program, given.target, given.threads)
        self._target_key = target_key(given.target, given.threads)
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
        self.best_seconds = min((s for s, _ in self.ranked()), default=None)
        self.emit(Corrected(number, self.traces[number], outcome, self.best_seconds))

    def ranked(self) -> list[tuple[float, int]]:
        """(seconds, number) of the valid trials, fastest first."""
        return sorted((o.seconds, n) for n, o in enumerate(self.outcomes) if o.seconds is not None)

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
            fingerprint=self._subject.fingerprint,
            modules=self._given.made_by(trace),
            censored=outcome.censored,
            cache=cache_of(self._given.target) if outcome.times else "",
            scale=outcome.scale,
            columns=MEANING,
            features=tuple(round(x, DIGITS) for x in self._describe(trace).tolist()),
        )
