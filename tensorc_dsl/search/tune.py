"""Tuning: a strategy asks, a runner answers, the database remembers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.measure.blas import one_blas_thread
from tensorc_dsl.measure.outcome import Outcome, Status
from tensorc_dsl.records.keys import program_key, target_key
from tensorc_dsl.records.queue import Queue, Unkept
from tensorc_dsl.records.trial import Phase, Trial
from tensorc_dsl.search.events import (
    Comparing,
    Event,
    Exhausted,
    Finished,
    Listener,
    Measured,
    Proposed,
    Started,
    Verifying,
    Waiting,
)
from tensorc_dsl.search.options import SearchOptions
from tensorc_dsl.search.space import Explorer, SpaceLike
from tensorc_dsl.search.strategy import Setting, strategy_of
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Refused, Trace
from tensorc_dsl.validate.validate import Invalid, Report

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

    `best_seconds` comes from the comparison of the `finalists`, where there was one. `verdict` is what a proof says of the
    best, None where none was made; `wrong` are those that were as good and are refuted, which are bugs. `outcomes` are the
    trials' in order, beside their `traces`; `statuses` counts them. `refusals` counts expansions that ran into a step that
    does not apply; they are no trials. `refused` counts the schedules in which a rule of the space was refused and left out.
    `exhausted` says why there are fewer trials than wanted, None where there are as many. `unkept` are records that are in
    no database.
    """

    best: Trace | None
    best_seconds: float | None
    verdict: Report | None
    wrong: tuple[tuple[Trace, Invalid], ...]
    finalists: tuple[Trace, ...]
    traces: tuple[Trace, ...]
    outcomes: tuple[Outcome, ...]
    statuses: dict[str, int]
    elapsed_seconds: float
    trials: int
    seed: int
    refusals: int
    refused: Mapping[Refused, int]
    interrupted: bool
    exhausted: Exhausted | None = None
    unkept: Unkept | None = None

    def __repr__(self) -> str:
        """What was found, and what of the rest is out of the ordinary."""
        time = None if self.best_seconds is None else float(f"{self.best_seconds:.4g}")
        shown: dict[str, object] = {"best_seconds": time}
        shown |= {name: getattr(self, name) for name in ("verdict", "statuses", "trials", "seed")}
        rare = ("refusals", "refused", "interrupted", "exhausted", "unkept")
        shown |= {name: value for name in rare if (value := getattr(self, name))}
        return f"TuneResult({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


def tune(
    space: SpaceLike,
    program: Program,
    target: Target,
    options: SearchOptions,
    *,
    runner: RunnerLike,
    threads: int,
    records: Queue | None = None,
    defaults: Iterable[Mapping[str, Decision]] = (),
    on_event: Listener | None = None,
    verify: Callable[[Trace], Report] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> TuneResult:
    """Search `space` for the fastest way to run `program` (unscheduled) on `target` with `threads` threads.

    Ends after the trials of the options, or when the space has nothing new, or on Ctrl-C with what there is by then. What
    `verify` refutes does not win, and is recorded as wrong. Given the measured times, the run is a function of the options.
    Raises KeyError for an unknown strategy; whatever is not a refusal or a failed candidate propagates.
    """
    trials = options.trials
    explorer = Explorer(space, options.seed, program.name, target)
    asked = strategy_of(options.strategy)(Setting(explorer, trials, tuple(defaults)))
    run = _Run(program, target, threads, options, records, on_event or (lambda _: None))
    started = clock()
    run.emit(Started(program.name, options.strategy, trials, options.seed))
    run.tell_what_waits()
    interrupted = False
    exhausted: Exhausted | None = None
    final: list[tuple[float, int]] = []
    try:
        while len(run.outcomes) < trials:
            before = clock()
            with one_blas_thread():
                batch = asked.propose(min(BATCH, trials - len(run.outcomes)))
            if not batch:
                exhausted = Exhausted(len(run.traces), explorer.followed(run.traces))
                run.emit(exhausted)
                break
            run.emit(Proposed(tuple(batch), clock() - before))
            answers = runner.measure([t.program for t in batch], run.best_seconds)
            for trace, outcome in zip(batch, answers, strict=True):
                run.measured(trace, outcome)
                asked.tell(trace, outcome)
        final = _final(run, runner)
    except KeyboardInterrupt:
        interrupted = True
    # Whoever interrupts waits for nothing: what was found is right by the reference, and is not given up for a proof.
    best, verdict, wrong, cut = _judged(run, final, None if interrupted else verify)
    interrupted = interrupted or cut
    if records is not None and records.unkept is not None:
        records.add_all(())  # there may be room by now
    elapsed = clock() - started
    run.emit(Finished(len(run.outcomes), best[1] if best else None, elapsed, interrupted))
    return TuneResult(
        best=best[0] if best else None,
        best_seconds=best[1] if best else None,
        verdict=verdict,
        wrong=wrong,
        finalists=tuple(run.traces[n] for n in run.finalists),
        traces=tuple(run.traces),
        outcomes=tuple(run.outcomes),
        statuses=dict(Counter(str(o.status) for o in run.outcomes)),
        elapsed_seconds=elapsed,
        trials=len(run.outcomes),
        seed=options.seed,
        refusals=explorer.refusals,
        refused=explorer.refused,
        interrupted=interrupted,
        exhausted=exhausted,
        unkept=None if records is None else records.unkept,
    )


class _Run:
    """The state of one search: what was tried so far, and where it is told and recorded."""

    def __init__(
        self,
        program: Program,
        target: Target,
        threads: int,
        options: SearchOptions,
        records: Queue | None,
        emit: Callable[[Event], None],
    ) -> None:
        self._task = program.name
        self._task_key = program_key(program)
        self._target_key = target_key(target, threads)
        self._options = options
        self._records = records
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

    def record(self, rows: list[tuple[int, Trace, Outcome]], phase: Phase) -> None:
        if self._records is not None:
            self._records.add_all([self._row(number, trace, outcome, phase) for number, trace, outcome in rows])
            self.tell_what_waits()

    def tell_what_waits(self) -> None:
        unkept = None if self._records is None else self._records.untold()
        if unkept is not None:
            self.emit(Waiting(unkept))

    def _row(self, number: int, trace: Trace, outcome: Outcome, phase: Phase) -> Trial:
        return Trial(
            task_key=self._task_key,
            target_key=self._target_key,
            task=self._task,
            strategy=self._options.strategy,
            seed=self._options.seed,
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


Best = tuple[Trace, float] | None


def _judged(
    run: _Run, final: Sequence[tuple[float, int]], verify: Callable[[Trace], Report] | None
) -> tuple[Best, Report | None, tuple[tuple[Trace, Invalid], ...], bool]:
    """The first that is not refuted, of the finalists and then of the other trials, with its verdict; the wrong ones; and
    whether Ctrl-C cut the looking short.

    All finalists are looked at: their times are in the database, too.
    """
    best: Best = None
    verdict: Report | None = None
    wrong: list[tuple[Trace, Invalid]] = []
    looked = 0
    others = [(s, n) for s, n in run.ranked() if n not in run.finalists]
    try:
        for seconds, n in (*final, *others):
            trace = run.traces[n]
            if best is not None and (n not in run.finalists or verify is None):
                break
            if verify is not None and n in run.finalists:
                run.emit(Verifying(looked, len(run.finalists)))
                looked += 1
            report = None if verify is None else verify(trace)
            if isinstance(report, Invalid):
                wrong.append((trace, report))
                message = f"{report.diagnostic.code}: {report.diagnostic.message}"
                run.record([(n, trace, Outcome(Status.WRONG_RESULT, message=message))], "final")
            elif best is None:
                best, verdict = (trace, seconds), report
    except KeyboardInterrupt:
        left = [(run.traces[n], s) for s, n in (*final, *others) if all(run.traces[n] is not t for t, _ in wrong)]
        return best or (left[0] if left else None), verdict, tuple(wrong), True
    return best, verdict, tuple(wrong), False


def _final(run: _Run, runner: RunnerLike) -> list[tuple[float, int]]:
    """Times of a second look at the best few, the winner first; where none works twice, at the next few, and so on."""
    numbers = [n for _, n in run.ranked()]
    while numbers:
        few, numbers = numbers[:FINALISTS], numbers[FINALISTS:]
        run.emit(Comparing(len(few)))
        again = _compare(run, few, runner)
        run.finalists += few
        run.record([(n, run.traces[n], o) for n, o in zip(few, again, strict=True)], "final")
        times = [(o.seconds, n) for n, o in zip(few, again, strict=True) if o.seconds is not None]
        if times:
            limit = min(times)[0] * (1 + TIE)
            even = [(len(run.traces[n].text), run.traces[n].text, n, s) for s, n in times if s <= limit]
            _, _, winner, seconds = min(even)
            return [(seconds, winner), *sorted(x for x in times if x[1] != winner)]
    return []


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
