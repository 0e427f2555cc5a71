"""The tuning loop: a strategy proposes candidates, a runner measures them, the database records them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.measure.blas import one_blas_thread
from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.records.keys import program_key, target_key
from tensorc_dsl.records.queue import Queue, Unkept
from tensorc_dsl.reference.open_sizes import sizing
from tensorc_dsl.search.drift import Recovered, Slower, Steady, Watch
from tensorc_dsl.search.events import (
    Diverged,
    Drifted,
    Exhausted,
    Finished,
    Listener,
    Proposed,
    Resumed,
    Settled,
    Slowed,
    Started,
)
from tensorc_dsl.search.finals import final, judged
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.log import Log
from tensorc_dsl.search.loop_features import MEANING
from tensorc_dsl.search.options import SearchOptions
from tensorc_dsl.search.past import Past, latest
from tensorc_dsl.search.regret import TWICE, Regret
from tensorc_dsl.search.runner import RunnerLike
from tensorc_dsl.search.source import Source, experience
from tensorc_dsl.search.space import Explorer, SpaceLike
from tensorc_dsl.search.strategy import Setting, StatesRegret, strategy_of
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Refused, Trace
from tensorc_dsl.validate.validate import Invalid, Report

BATCH = 8
"""Candidates per question: they build together, and the model is asked anew after each batch."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What a search found. `best` is None when no candidate was valid.

    `best_seconds` comes from the comparison of the `finalists`, where there was one. `verdict` is what a proof says of the
    best, None where none was made; `wrong` are those that were as good and are refuted, which are bugs. `outcomes` are the
    trials' in order, beside their `traces`; `statuses` counts them. `refusals` counts expansions that ran into a step that
    does not apply; they are no trials. `refused` counts the schedules in which a rule of the space was refused and left out.
    `exhausted` says why there are fewer trials than wanted, None where there are as many. `regret` is the last one that the
    strategy stated, None where it stated none; `enough` if the search ended by it. `unkept` are records that are in no
    database.
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
    regret: Regret | None = None
    enough: bool = False
    unkept: Unkept | None = None

    def __repr__(self) -> str:
        """What was found, and what of the rest is out of the ordinary."""
        time = None if self.best_seconds is None else float(f"{self.best_seconds:.4g}")
        shown: dict[str, object] = {"best_seconds": time}
        shown |= {name: getattr(self, name) for name in ("verdict", "statuses", "trials", "seed")}
        rare = ("refusals", "refused", "interrupted", "exhausted", "regret", "enough", "unkept")
        shown |= {name: value for name in rare if (value := getattr(self, name))}
        return f"TuneResult({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


class Search:
    """A search under way: `step` tries one batch, and `finish` says what was found."""

    def __init__(
        self,
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
        made_by: Callable[[Trace], Mapping[str, str]] = lambda _: {},
        watch: Watch | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.options = options
        self._explorer = Explorer(space, options.seed, program.name, target, sizing(program).timed[-1])
        self._runner = runner
        self._records = records
        self._verify = verify
        self._watch = watch
        self._clock = clock
        self._started = clock()
        self._past = Past()
        if options.resume and records is not None:
            self._past = latest(records.kept(program_key(program), target_key(target, threads)), options)
        self._diverged = False

        def source(median: Array) -> Source | None:
            key, began = program_key(program), self._past.began
            found = () if records is None else records.others(key, target_key(target, threads), MEANING, began)
            return Source.of(experience(found), median)

        setting = Setting(self._explorer, options.trials, tuple(defaults), source)
        self._asked = strategy_of(options.strategy)(setting)
        if options.until is not None and not isinstance(self._asked, StatesRegret):
            raise ValueError(f"the strategy {options.strategy!r} states no regret that could end the search")
        self._exhausted: Exhausted | None = None
        self._regret: Regret | None = None
        self._low = 0
        self.curve: list[tuple[int, float | None]] = []
        """How many trials there were, and the best time, before each batch."""
        self.log = Log(
            program, target, threads, options, records, on_event or (lambda _: None), made_by,
            self._explorer.describe, self._past,
        )  # fmt: skip
        self.log.emit(
            Started(program.name, options.strategy, options.trials, options.seed, options.budget, options.until)
        )
        self.log.tell_what_waits()
        if options.resume:
            self.log.emit(Resumed(len(self._past.outcomes)))

    @property
    def over(self) -> bool:
        """Whether the space has nothing new, the time is up, or the regret is low enough."""
        return self._exhausted is not None or self._late() or self._enough

    @property
    def _enough(self) -> bool:
        return self._low >= TWICE

    def _late(self) -> bool:
        return self.options.budget is not None and self._clock() - self._started >= self.options.budget

    def step(self, most: int) -> None:
        """One batch of at most so many trials."""
        log, before = self.log, self._clock()
        with one_blas_thread():
            batch = self._asked.propose(min(BATCH, most))
        if not batch:
            self._exhausted = Exhausted(len(log.traces), self._explorer.followed(log.traces))
            log.emit(self._exhausted)
            return
        log.emit(Proposed(tuple(batch), self._clock() - before))
        self.curve.append((len(log.outcomes), log.best_seconds))
        first = len(log.outcomes)
        fresh = self._measured(batch)
        if fresh and self._watch is not None:
            self._settle(self._watch, fresh)
        for n in range(first, len(log.outcomes)):
            self._asked.tell(log.traces[n], log.outcomes[n])
        self._estimate()

    def _estimate(self) -> None:
        """The strategy's regret is told, where it states one, and counted where it is low enough to end the search."""
        if not isinstance(self._asked, StatesRegret):
            return
        with one_blas_thread():
            found = self._asked.regret()
        if found is None:
            return
        self._regret = found
        until = self.options.until
        self._low = self._low + 1 if until is not None and found.share <= until else 0
        self.log.emit(found)

    def _measured(self, batch: Sequence[Trace]) -> list[int]:
        """All of the batch is in the log, or as much as there is time for; the numbers of what was not recorded before."""
        known = [self._past.take(program_key(t.program)) for t in batch]
        new = [t.program for t, outcome in zip(batch, known, strict=True) if outcome is None]
        if new and self._past.outcomes and not self._diverged:
            self._diverged = True
            self.log.emit(Diverged(len(self._past.outcomes)))
        scale = 1.0 if self._watch is None else self._watch.scale
        best = None if self.log.best_seconds is None else scale * self.log.best_seconds
        answers = self._runner.measure(new, best) if new else iter(())
        fresh: list[int] = []
        for trace, outcome in zip(batch, known, strict=True):
            if outcome is None:
                if fresh and self._late():
                    break
                fresh.append(len(self.log.outcomes))
            self.log.measured(trace, outcome or next(answers), recorded=outcome is not None)
        return fresh

    def _settle(self, watch: Watch, fresh: Sequence[int]) -> None:
        """The new outcomes are those of the machine as it was before the batch."""
        log = self.log
        look = watch.look(lambda factor: log.emit(Drifted(factor)))
        valid = [n for n in fresh if log.outcomes[n].seconds is not None]
        match look:
            case Steady():
                pass
            case Recovered(factor=factor, waited=waited):
                log.emit(Settled(factor, waited, len(valid)))
                for n in valid:
                    log.corrected(n, watch.again(log.traces[n].program))
            case Slower(factor=factor, waited=waited):
                if waited:
                    log.emit(Slowed(factor))
                for n in valid:
                    # Some of the batch may have been measured before the machine became slow.
                    outcome = watch.again(log.traces[n].program) if waited else log.outcomes[n]
                    scaled = None if outcome.seconds is None else outcome.seconds / factor
                    log.corrected(n, replace(outcome, seconds=scaled, scale=factor))
            case _:
                assert_never(look)
        for _, n in log.ranked()[:1]:
            watch.follow(log.traces[n].program, log.outcomes[n])

    def finish(self, interrupted: bool) -> TuneResult:
        """The best few compared and proved, unless the search was interrupted: then what there is by then."""
        log = self.log
        compared: list[tuple[float, int]] = []
        if not interrupted:
            try:
                compared = final(log, self._runner)
            except KeyboardInterrupt:
                interrupted = True
        # Whoever interrupts waits for nothing: what was found is right by the reference, and is not given up for a proof.
        best, verdict, wrong, cut = judged(log, compared, None if interrupted else self._verify)
        interrupted = interrupted or cut
        if self._records is not None and self._records.unkept is not None:
            self._records.add_all(())  # there may be room by now
        elapsed = self._clock() - self._started
        log.emit(Finished(len(log.outcomes), best[1] if best else None, elapsed, interrupted))
        return TuneResult(
            best=best[0] if best else None,
            best_seconds=best[1] if best else None,
            verdict=verdict,
            wrong=wrong,
            finalists=tuple(log.traces[n] for n in log.finalists),
            traces=tuple(log.traces),
            outcomes=tuple(log.outcomes),
            statuses=dict(Counter(str(o.status) for o in log.outcomes)),
            elapsed_seconds=elapsed,
            trials=len(log.outcomes),
            seed=self.options.seed,
            refusals=self._explorer.refusals,
            refused=self._explorer.refused,
            interrupted=interrupted,
            exhausted=self._exhausted,
            regret=self._regret,
            enough=self._enough,
            unkept=None if self._records is None else self._records.unkept,
        )


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
    made_by: Callable[[Trace], Mapping[str, str]] = lambda _: {},
    watch: Watch | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> TuneResult:
    """Search `space` for the fastest way to run `program` (unscheduled) on `target` with `threads` threads.

    Ends after the trials or the time of the options, at their regret, or when the space has nothing new, or on Ctrl-C with
    what there is by then. What `verify` refutes does not win, and is recorded as wrong. `made_by` says which versions of what
    made a trace. `watch` tells when the machine is slower than it was. Given the measured times, the run is a function of the
    options. Raises KeyError for an unknown strategy, ValueError for one that states no regret where one is to end the search;
    whatever is not a refusal or a failed candidate propagates.
    """
    search = Search(
        space, program, target, options, runner=runner, threads=threads, records=records, defaults=defaults,
        on_event=on_event, verify=verify, made_by=made_by, watch=watch, clock=clock,
    )  # fmt: skip
    try:
        while len(search.log.outcomes) < options.trials and not search.over:
            search.step(options.trials - len(search.log.outcomes))
    except KeyboardInterrupt:
        return search.finish(interrupted=True)
    return search.finish(interrupted=False)
