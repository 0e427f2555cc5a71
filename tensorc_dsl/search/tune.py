"""Tuning: a strategy asks, a runner answers, the database remembers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.measure.blas import one_blas_thread
from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.records.database import Database
from tensorc_dsl.records.keys import program_key, target_key
from tensorc_dsl.records.trial import Phase, Trial
from tensorc_dsl.search.events import Event, Finished, Listener, Measured, Proposed, Started
from tensorc_dsl.search.space import Explorer, SpaceLike
from tensorc_dsl.search.strategy import Setting, strategy_of
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Trace

BATCH = 8
"""Candidates per question: they build together, and the model is asked anew after each batch."""

FINALISTS = 5
"""How many of the best are measured again, side by side, at the end."""

LOOKS, DISTURBED = 3, 1.2
"""A comparison in which every finalist took this many times longer than in its trial was disturbed by other work on the
machine; it is repeated, up to this many in all."""

TIE = 0.01
"""Finalists within this share of the fastest are as fast; the one with the shorter program wins."""


class RunnerLike(Protocol):
    """Builds, checks and times programs; `measure.local.LocalRunner` is one."""

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        """An outcome per program, in order, each as soon as it is known; far slower than `best` may be cut short."""
        ...

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        """The programs measured again, in turns, so that a drift of the machine hits all of them alike."""
        ...


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What a search found. `best` is None when no candidate was valid.

    `best_seconds` comes from the comparison of the `finalists`, where there was one. `outcomes` are the trials' in order,
    beside their `traces`; `statuses` counts them. `refusals` counts expansions that ran into a step that does not apply;
    they are no trials.
    """

    best: Trace | None
    best_seconds: float | None
    finalists: tuple[Trace, ...] = field(repr=False)
    traces: tuple[Trace, ...] = field(repr=False)
    outcomes: tuple[Outcome, ...] = field(repr=False)
    statuses: dict[str, int]
    elapsed_seconds: float
    trials: int
    seed: int
    refusals: int
    interrupted: bool


def tune(
    space: SpaceLike,
    program: Program,
    target: Target,
    *,
    strategy: str = "bayes",
    trials: int = 64,
    seed: int = 0,
    runner: RunnerLike,
    threads: int,
    database: Database | None = None,
    defaults: Iterable[Mapping[str, Decision]] = (),
    on_event: Listener | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> TuneResult:
    """Search `space` for the fastest way to run `program` (unscheduled) on `target` with `threads` threads.

    Ends after `trials` trials, or when the space has nothing new, or on Ctrl-C with what there is by then. Given the
    measured times, the run is a function of the seed. Raises KeyError for an unknown strategy and ValueError for a
    negative budget; whatever is not a refusal or a failed candidate propagates.
    """
    if trials < 0:
        raise ValueError(f"trials must not be negative, not {trials}")
    explorer = Explorer(space, seed, program.name, target)
    asked = strategy_of(strategy)(Setting(explorer, trials, tuple(defaults)))
    run = _Run(program, target, threads, strategy, seed, database, on_event or (lambda _: None))
    started = clock()
    run.emit(Started(program.name, strategy, trials, seed))
    interrupted = False
    best: tuple[Trace, float] | None = None
    try:
        while len(run.outcomes) < trials:
            before = clock()
            with one_blas_thread():
                batch = asked.propose(min(BATCH, trials - len(run.outcomes)))
            if not batch:
                break
            run.emit(Proposed(tuple(batch), clock() - before))
            answers = runner.measure([t.program for t in batch], run.best_seconds)
            for trace, outcome in zip(batch, answers, strict=True):
                run.measured(trace, outcome)
                asked.tell(trace, outcome)
        best = _final(run, runner)
    except KeyboardInterrupt:
        interrupted = True
        best = run.leader()
    elapsed = clock() - started
    run.emit(Finished(len(run.outcomes), best[1] if best else None, elapsed, interrupted))
    return TuneResult(
        best=best[0] if best else None,
        best_seconds=best[1] if best else None,
        finalists=tuple(run.traces[n] for n in run.finalists),
        traces=tuple(run.traces),
        outcomes=tuple(run.outcomes),
        statuses=dict(Counter(str(o.status) for o in run.outcomes)),
        elapsed_seconds=elapsed,
        trials=len(run.outcomes),
        seed=seed,
        refusals=explorer.refusals,
        interrupted=interrupted,
    )


class _Run:
    """The state of one search: what was tried so far, and where it is told and recorded."""

    def __init__(
        self,
        program: Program,
        target: Target,
        threads: int,
        strategy: str,
        seed: int,
        database: Database | None,
        emit: Callable[[Event], None],
    ) -> None:
        self._task = program.name
        self._task_key = program_key(program)
        self._target_key = target_key(target, threads)
        self._strategy = strategy
        self._seed = seed
        self._database = database
        self.emit = emit
        self.traces: list[Trace] = []
        self.outcomes: list[Outcome] = []
        self.best_seconds: float | None = None
        self.finalists: list[int] = []

    def measured(self, trace: Trace, outcome: Outcome) -> None:
        number = len(self.outcomes)
        self.record([(number, trace, outcome)], "trial")
        self.traces.append(trace)
        self.outcomes.append(outcome)
        if outcome.seconds is not None:
            self.best_seconds = min(outcome.seconds, self.best_seconds or outcome.seconds)
        self.emit(Measured(number, trace, outcome, self.best_seconds))

    def ranked(self) -> list[tuple[float, int]]:
        """(seconds, number) of the valid trials, fastest first."""
        return sorted((o.seconds, n) for n, o in enumerate(self.outcomes) if o.seconds is not None)

    def leader(self) -> tuple[Trace, float] | None:
        ranked = self.ranked()
        return (self.traces[ranked[0][1]], ranked[0][0]) if ranked else None

    def record(self, rows: list[tuple[int, Trace, Outcome]], phase: Phase) -> None:
        if self._database is not None:
            self._database.add_all([self._row(number, trace, outcome, phase) for number, trace, outcome in rows])

    def _row(self, number: int, trace: Trace, outcome: Outcome, phase: Phase) -> Trial:
        return Trial(
            task_key=self._task_key,
            target_key=self._target_key,
            task=self._task,
            strategy=self._strategy,
            seed=self._seed,
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
        )


def _final(run: _Run, runner: RunnerLike) -> tuple[Trace, float] | None:
    """The winner of a second look at the best few; where none of those works twice, at the next few, and so on."""
    numbers = [n for _, n in run.ranked()]
    while numbers:
        few, numbers = numbers[:FINALISTS], numbers[FINALISTS:]
        again = _compare(run, few, runner)
        run.finalists += few
        run.record([(n, run.traces[n], o) for n, o in zip(few, again, strict=True)], "final")
        times = [(o.seconds, n) for n, o in zip(few, again, strict=True) if o.seconds is not None]
        if times:
            limit = min(times)[0] * (1 + TIE)
            even = [(len(run.traces[n].text), run.traces[n].text, n, s) for s, n in times if s <= limit]
            _, _, winner, seconds = min(even)
            return run.traces[winner], seconds
    return None


def _compare(run: _Run, numbers: list[int], runner: RunnerLike) -> list[Outcome]:
    """An outcome per trial, from measuring them side by side: a failure if there was any, else the fastest look."""
    held: list[Outcome] = []
    for _ in range(LOOKS):
        seen = runner.compare([run.traces[n].program for n in numbers])
        held = [_better(a, b) for a, b in zip(held, seen, strict=True)] if held else seen
        ratios = [o.seconds / (run.outcomes[n].seconds or 1.0) for n, o in zip(numbers, held, strict=True) if o.seconds]
        if min(ratios, default=0.0) <= DISTURBED:
            break
    return held


def _better(a: Outcome, b: Outcome) -> Outcome:
    """The failure if one is, else the faster."""
    if a.seconds is None or b.seconds is None:
        return b if a.seconds is not None else a
    return min(a, b, key=lambda o: o.seconds or 0.0)
