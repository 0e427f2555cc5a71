"""The tuning loop, for one task or several: a strategy proposes candidates, a runner measures them, the database records
them. At the end the best few are compared side by side, and the winner is proved.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import numpy as np

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.proof.equivalence.validate import Invalid, Report
from tensorc_dsl.reference.work import are_weighted, sizing
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Refused, Trace
from tensorc_dsl.tuning.measure.outcome import GIVE_UP, Late, Outcome, RunnerLike, Status, interval
from tensorc_dsl.tuning.records.database import Unkept
from tensorc_dsl.tuning.records.trial import keys_of, program_key, target_key
from tensorc_dsl.tuning.search.by_size import by_size
from tensorc_dsl.tuning.search.dispatch import Candidate, Dispatch, selected
from tensorc_dsl.tuning.search.events import (
    Comparing,
    Diverged,
    Drifted,
    Exhausted,
    Finished,
    Informed,
    Learnt,
    Proposed,
    Resumed,
    Settled,
    Slowed,
    Started,
    Unshipped,
    Verifying,
)
from tensorc_dsl.tuning.search.expansion import here
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.log import Log, Past, SearchInput, latest
from tensorc_dsl.tuning.search.options import SearchOptions
from tensorc_dsl.tuning.search.plausible import Look, Watch
from tensorc_dsl.tuning.search.source import Experience, Lessons, Source
from tensorc_dsl.tuning.search.space import Explorer, modelled
from tensorc_dsl.tuning.search.strategy import TWICE, Prediction, Predicts, Regret, Setting, StatesRegret, strategy_of

FINALISTS = 5
"""How many of the best are measured again, side by side, at the end."""

OTHERS = 3
"""How many of the best by their times as they were measured, and by the least that they may have, are finalists, too."""

LOOKS, DISTURBED = 3, 1.2
"""A comparison in which every finalist took this many times longer than in its trial was disturbed by other work on the
machine; so was one in which a finalist lost to one that it was faster than, by this much. It is repeated, up to this many in
all."""

TIE, BAND, FEWEST = 0.01, 0.05, 8
"""Finalists within this share of the fastest are as fast, or within the second one if their samples do not tell them apart,
of which each needs so many; the one with the shorter program wins."""

Best = tuple[Trace, float] | None


def judged(
    run: Log, final: Sequence[tuple[float, int]], verify: Callable[[Trace], Report] | None
) -> tuple[Best, Report | None, tuple[tuple[Trace, Invalid], ...], bool]:
    """The first trial that is not refuted, finalists first, with its verdict; the refuted ones; and whether Ctrl-C ended the
    proofs early.

    All finalists are proved, since their times are in the database too.
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


@frozen
class Compared:
    """Times of a second measurement of the best few, the fastest first, as (seconds, trial).

    The machine was `scale` times slower than undisturbed, by which they are divided, and its memory `memory` times. So many
    others are `alike` in time with the first: within the share `band` of the fastest, which their samples do not tell apart.
    """

    times: list[tuple[float, int]]
    scale: float = 1.0
    memory: float = 1.0
    alike: int = 0
    band: float = 0.0


def final(
    run: Log,
    runner: RunnerLike,
    watch: Watch | None = None,
    cost: Callable[[Outcome], float] | None = None,
    also: Sequence[int] = (),
) -> Compared:
    """The best few, and `also` these, measured once more side by side. If all of these fail, the next few are. The best is
    that of the least `cost`, by default of the least time.

    The first few by their times as they were measured are among them, and the first few that may be faster than recorded: a
    factor that was wrong excludes no program. Of those that are as fast as the fastest, the simplest is the first.
    """
    numbers = [n for _, n in run.ranked()]
    if cost is not None:
        numbers.sort(key=lambda n: cost(run.outcomes[n]))
    others = [*also, *(n for _, n in (*run.ranked_as_measured()[:OTHERS], *run.ranked_by_hope()[:OTHERS]))]
    while numbers:
        few = [*dict.fromkeys([*numbers[:FINALISTS], *others])]
        numbers, others = [n for n in numbers if n not in few], []
        run.emit(Comparing(len(few)))
        again, factor, memory = _compare(run, few, runner, watch)
        run.finalists += few
        run.record([(n, run.traces[n], o) for n, o in zip(few, again, strict=True)], "final")
        valid = [(o, n) for n, o in zip(few, again, strict=True) if o.seconds is not None]
        if valid:
            of = cost or _seconds
            valid.sort(key=lambda x: (of(x[0]), x[1]))
            fastest, least = valid[0][0], of(valid[0][0])
            alike = [
                (o, n) for o, n in valid if (as_fast(o, fastest) if cost is None else of(o) <= (1.0 + TIE) * least)
            ]
            won = min(alike, key=lambda x: (len(run.traces[x[1]].text), run.traces[x[1]].text))
            band = max(of(o) for o, _ in alike) / least - 1.0 if least else 0.0
            order = [(_seconds(o), n) for o, n in (won, *(x for x in valid if x is not won))]
            return Compared(order, factor, memory, len(alike) - 1, band)
    return Compared([])


def _seconds(outcome: Outcome) -> float:
    return outcome.seconds or 0.0


def as_fast(outcome: Outcome, fastest: Outcome) -> bool:
    """Whether the times of a finalist do not tell it from the fastest one: they differ by less than `TIE`, or by less than
    both vary. Only the lower ends of their intervals say how much they vary: other work moves the upper ones. A difference
    above `BAND` is one in any case."""
    seconds, least = outcome.seconds or 0.0, fastest.seconds or 0.0
    if seconds <= (1.0 + TIE) * least:
        return True
    if seconds > (1.0 + BAND) * least or min(len(outcome.times), len(fastest.times)) < FEWEST:
        return False
    return seconds - least <= (seconds - _low(outcome)) + (least - _low(fastest))


def _low(outcome: Outcome) -> float:
    """The lower end of the interval of the time."""
    return interval(outcome.times)[0] / outcome.scale


def _compare(
    run: Log, numbers: list[int], runner: RunnerLike, watch: Watch | None
) -> tuple[list[Outcome], float, float]:
    """An outcome per trial, from measuring them side by side: a failure if there was any, else the fastest look; the factor
    by which these are divided; and that of memory, if it was slow at each look. The yardstick is measured among them."""
    programs = [run.traces[n].program for n in numbers]
    trials = [run.outcomes[n] for n in numbers]
    yardstick = None if watch is None else watch.yardstick
    if yardstick is not None and all(p is not yardstick for p in programs):
        programs.append(yardstick)
    held: list[Outcome] = []
    memory = 1.0
    for _ in range(LOOKS):
        before = 1.0 if watch is None else watch.rested()
        seen = runner.compare(programs)
        memory = 1.0 if watch is None else max(before, watch.rested(patient=False))
        held = [_better(a, b) for a, b in zip(held, seen, strict=True)] if held else seen
        if memory == 1.0 and not _disturbed(trials, held, 1.0 if watch is None else watch.scale):
            break
    if watch is None or yardstick is None:
        return held[: len(numbers)], 1.0, memory
    # A swing of the machine may hit the same finalist each time. Alone, it is as fast as in its trial, or its trial was luck.
    for n in _contradicted(trials, held):
        for _ in range(TURNS):
            held[n] = _better(held[n], watch.again(programs[n]))
            if n not in _contradicted(trials, held):
                break
    # The machine may change in the middle of a round: the factor is one that every finalist was slower by.
    slower = (now / trial for now, trial in _pairs(trials, held))
    beside = watch.beside(next(o for p, o in zip(programs, held, strict=True) if p is yardstick))
    factor = max(1.0, min(beside, *slower))
    compared = [watch.corrected(o, factor) for o in held[: len(numbers)]]
    if memory != 1.0:
        # Finalists that memory bounds were slower than the others here. Other work only adds time: the lesser one is nearer.
        compared = [_better(o, t) if t.seconds else o for o, t in zip(compared, trials, strict=True)]
    return compared, factor, memory


def _disturbed(trials: Sequence[Outcome], held: Sequence[Outcome], scale: float) -> bool:
    """Whether every finalist took far longer than in its trial, on a machine so many times slower; or one that was faster
    than the winner in its trial is by far not so now."""
    pairs = _pairs(trials, held)
    return bool(pairs) and (
        min(now / trial for now, trial in pairs) > DISTURBED * scale or bool(_contradicted(trials, held))
    )


def _contradicted(trials: Sequence[Outcome], held: Sequence[Outcome]) -> list[int]:
    """The finalists that were faster than the winner in their trials, and are by far not so now."""
    won, was = min(_pairs(trials, held), default=(1.0, 0.0))
    return [
        n
        for n, (o, t) in enumerate(zip(held, trials, strict=False))
        if o.seconds and t.seconds and t.seconds < was and o.seconds * was > DISTURBED * won * t.seconds
    ]


def _pairs(trials: Sequence[Outcome], held: Sequence[Outcome]) -> list[tuple[float, float]]:
    """The times of the valid finalists now, and in their trials."""
    return [(o.seconds, t.seconds) for o, t in zip(held, trials, strict=False) if o.seconds and t.seconds]


def _better(a: Outcome, b: Outcome) -> Outcome:
    """The failure, if there is one, else the faster outcome."""
    if a.seconds is None or b.seconds is None:
        return b if a.seconds is not None else a
    return min(a, b, key=lambda o: o.seconds or 0.0)


# The tuning loop: a strategy proposes candidates, a runner measures them, the database records them.


BATCH = 8
"""Candidates of a batch: they are built together, and the model is updated after each batch."""

AHEAD = 2
"""Where several programs are timed at once, so many times as many are candidates of a batch, if those are more."""

TURNS = 3
"""How often a trial that may be the best is measured again, at most, until the machine is as fast before as after it."""


def informed(tasks: Sequence[Experience]) -> Informed:
    """What is told of the trials that a strategy learns from."""
    elsewhere = [t for t in tasks if t.machine is not None]
    return Informed(
        sum(len(t.speeds) for t in tasks),
        len({t.task for t in tasks}),
        sum(len(t.speeds) for t in elsewhere),
        len({t.machine for t in elsewhere}),
    )


@contextmanager
def _no_collection() -> Generator[None]:
    """No garbage is collected meanwhile: expansions make many objects and few cycles, and took a quarter longer with it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@frozen
class TuneResult:
    """The result of a search. `best` is None if no candidate was valid.

    `best_seconds` comes from the comparison of the `finalists`, if there was one. `verdict` is the proof of the best, None if
    none was made; `wrong` are trials that a proof refutes, which are bugs. `outcomes` and `traces` are those of the
    trials, in order; `statuses` counts them. `refusals` counts expansions that a refused step ended; they are no trials.
    `refused` counts the schedules in which a rule of the space was refused and left out. `exhausted` is the reason for fewer
    trials than requested, or None. `regret` is the last one that the strategy stated, if it stated one; `enough` if the
    search ended by it. `unkept` are the records that could not be written to a database.
    `scale` is how many times slower than in the search the machine was in the comparison; its times are divided by that.
    `memory` is how many times slower its memory was at each look: then another schedule may be the best. So many other
    finalists are `alike`: as fast as the best within the share `band`, and not as simple.
    Where the best selects among kernels, times at sizes that were not timed, by which its cases were chosen, are expected
    `within` this share of what was predicted, with probability 0.95.
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
    scale: float = 1.0
    memory: float = 1.0
    alike: int = 0
    band: float = 0.0
    within: float | None = None

    def __repr__(self) -> str:
        """The main fields, and the others that differ from their usual values."""
        time = None if self.best_seconds is None else float(f"{self.best_seconds:.4g}")
        shown: dict[str, object] = {"best_seconds": time}
        shown |= {name: getattr(self, name) for name in ("verdict", "statuses", "trials", "seed")}
        rare = ("refusals", "refused", "interrupted", "exhausted", "regret", "enough", "unkept", "scale", "memory")
        shown |= {name: value for name in rare if (value := getattr(self, name)) and value != 1.0}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


@frozen
class _Batch:
    """Trials of a batch, the outcomes of those that were recorded before, and the answers that come of the others."""

    traces: Sequence[Trace] = ()
    known: Sequence[Outcome | None] = ()
    answers: Iterator[Outcome | Late] = iter(())
    first: int = 0
    """How many trials there were before it."""


class Search:
    """A search under way. `step` tries one batch; `finish` compares and proves the best of all batches.

    Refused steps and failed candidates are counted and recorded; any other exception propagates.
    """

    def __init__(self, given: SearchInput) -> None:
        """The search begins, with the past of the one that it resumes.

        Raises KeyError for an unknown strategy, and ValueError for one that states no regret where one is to end the search.
        """
        program, options, records = given.program, given.options, given.records
        task, target = program_key(program), target_key(given.target, given.threads, given.copies)
        self._given = given
        self._sizing = sizing(program)
        expander = given.expander or here(given.space)
        self._explorer = Explorer(
            given.space, options.seed, program.name, given.target, self._sizing.timed[-1], expander
        )
        self._started = given.clock()
        self._past = given.past or Past()
        sizes = len(self._sizing.timed) > 1
        self._even = sizes and (options.objective == "worst" or not are_weighted(program))
        """Whether sizes count alike, by how many times longer than the fastest trial there one takes."""
        self._first: tuple[float, ...] = ()
        """The times at each size of the first valid trial, if there are several."""
        several = sizes and (options.objective == "worst" or options.kernels > 1)
        self._alone = not several
        if options.resume and records is not None:
            self._past = latest(records.kept(task, target), options, program, at_sizes=several or self._even)
        self._diverged = False

        def source(median: Callable[[], Array]) -> Source | None:
            tasks = self._lessons.tasks()
            if not tasks:
                return None
            self.log.emit(informed(tasks))
            return Source.of(tasks, median(), self._lessons.machine, self._lessons.task.key, told=self._lessons.told)

        def bests() -> Sequence[Mapping[str, Decision]]:
            return self._lessons.bests()

        def itself() -> Sequence[Mapping[str, Decision]]:
            return self._lessons.itself()

        setting = Setting(self._explorer, options.trials, source=source, bests=bests, itself=itself)
        factory = strategy_of(options.strategy)
        self._asked = by_size(factory, setting, self._sizing, self._even) if several else factory(setting)
        if options.until is not None and not isinstance(self._asked, StatesRegret):
            raise ValueError(f"the strategy {options.strategy!r} states no regret that could end the search")
        self._exhausted: Exhausted | None = None
        self._unfollowed: set[int] = set()
        """The trials whose second times did not agree with the first."""
        self._regret: Regret | None = None
        self._low = 0
        self._dispatch: Dispatch | None = None
        self._open = _Batch()
        """The batch that is under way."""
        self._behind = _Batch()
        """The last trials of the batch before."""
        self._pending: dict[int, Trace] = {}
        """The proposed traces that a slow machine holds back, by the identity of their programs."""
        self.curve: list[tuple[int, float | None]] = []
        """How many trials there were, and the best time, before each batch."""
        self.log = Log(given, self._explorer.describe, self._past)
        self.log.emit(
            Started(program.name, options.strategy, options.trials, options.seed, options.budget, options.until)
        )
        self.log.tell_what_waits()
        if options.resume:
            self.log.emit(Resumed(len(self._past.outcomes)))

    @cached_property
    def _lessons(self) -> Lessons:
        """What others' records teach. Those of the package are read now, and told of if they cannot be."""
        given = self._given
        found = None if given.shipped is None else given.shipped()
        if isinstance(found, Diagnostic):
            self.log.emit(Unshipped(found))
            found = None
        return Lessons.of(
            given.program, given.target, given.threads, (given.records, found), self._past.began, given.copies
        )

    @property
    def recalling(self) -> bool:
        """Whether it has recorded trials before it that it is expected to choose again."""
        return bool(self._past.outcomes) and not self._diverged

    @property
    def begun(self) -> int:
        """How many trials there are, with those that the search does not wait for yet."""
        return len(self.log.outcomes) + len(self._pending) + len(self._behind.traces) + len(self._open.traces)

    @property
    def options(self) -> SearchOptions:
        return self._given.options

    @property
    def over(self) -> bool:
        """Whether the space is exhausted, the time is up, or the regret is low enough."""
        return self._exhausted is not None or self._late() or self._enough

    @property
    def _enough(self) -> bool:
        return self._low >= TWICE

    def _late(self) -> bool:
        return self.options.budget is not None and self._given.clock() - self._started >= self.options.budget

    def begin(self, left: int, total: int, most: int) -> bool:
        """Begin a batch of at most `most` trials, where `left` are left of the `total` ones that the tasks of the run share.

        Returns whether there is one, which `end` takes; the space may be exhausted.
        """
        log, many = self.log, self._given.many
        self._collect(wait=False)
        before = self._given.clock()
        count = BATCH if many is None else max(BATCH, AHEAD * many.lanes)
        with one_blas_thread(), _no_collection():
            batch = self._asked.propose(min(count, left, most), left / total)
            predictions = tuple(map(self._predicted, batch))
        if not batch:
            self._collect(wait=True)
            self._exhausted = Exhausted(len(log.traces), self._explorer.followed(log.traces))
            log.emit(self._exhausted)
            return False
        log.emit(Proposed(tuple(batch), self._given.clock() - before, predictions))
        self.curve.append((len(log.outcomes), log.best_seconds))
        self._send(batch)
        return True

    @property
    def ready(self) -> bool:
        """Whether `end` waits for nothing: all answers of the batch are here, but for those that come behind."""
        many = self._given.many
        return many is None or many.open <= self._later(len(self._open.traces))

    def wait(self) -> None:
        """Wait for a moment for what machines do for this search, and for others beside it."""
        if self._given.many is not None:
            self._given.many.pump()

    def end(self) -> None:
        """Log the trials of the batch under way, and learn from them."""
        first = self._open.first
        self._measure()
        self._learn(first)

    def _later(self, count: int) -> int:
        """How many of the last trials of a batch come behind the proposals for the next one.

        They are what machines have at most, so that none waits for proposals. A quarter of the first batch is awaited, since
        nothing is known before.
        """
        many = self._given.many
        return 0 if many is None else min(AHEAD * many.lanes, count if self.log.outcomes else count - count // 4)

    def _collect(self, wait: bool) -> None:
        """Log and learn the outcomes that slow machines held back: those that are known, or all trials that are open."""
        many = self._given.many
        first = len(self.log.outcomes)
        if wait:
            self._take_behind()
        if many is not None and self._pending:
            for program, outcome in many.late(wait):
                self.log.measured(self._pending.pop(id(program)), outcome)
        if len(self.log.outcomes) > first:
            self._learn(first)

    def _take_behind(self) -> None:
        """Log the last trials of the batch before."""
        behind, self._behind = self._behind, _Batch()
        for trace, outcome in zip(behind.traces, behind.known, strict=True):
            self._take(trace, outcome, behind.answers)

    def _take(self, trace: Trace, known: Outcome | None, answers: Iterator[Outcome | Late]) -> bool:
        """Log a trial that is known, or the next answer. Returns whether there is an outcome; a slow machine may hold it."""
        answer = known or next(answers)
        if isinstance(answer, Late):
            self._pending[id(trace.program)] = trace
            return False
        self.log.measured(trace, answer, recorded=known is not None)
        return True

    def _learn(self, first: int) -> None:
        """Tell the strategy the outcomes from that one on."""
        log, learning = self.log, self._given.clock()
        with one_blas_thread():
            for n in range(first, len(log.outcomes)):
                self._asked.tell(log.traces[n], self._told(log.outcomes[n]))
            self._estimate()
        log.emit(Learnt(self._given.clock() - learning))

    def _told(self, outcome: Outcome) -> Outcome:
        """What a strategy learns of an outcome. Where sizes count alike, and it proposes for all of them together, that is by
        how many times longer than the first trial this one takes, in the mean: few operations take as long as a call, so
        times for an operation would be those of the smallest size alone."""
        if outcome.seconds is None:
            return outcome
        seconds = outcome.seconds
        if self._even and self._alone and outcome.at:
            self._first = self._first or outcome.at
            whole = sum(w * s for w, s in zip(self._sizing.weights, self._first, strict=True))
            seconds = whole * float(np.mean(np.array(outcome.at) / self._first)) / outcome.scale
        # What was told before the machine became faster was told in times of the machine as it was at first.
        return replace(outcome, seconds=seconds * (1.0 if self._given.watch is None else self._given.watch.unit))

    def _predicted(self, trace: Trace) -> Prediction | None:
        return self._asked.predicted(trace) if isinstance(self._asked, Predicts) else None

    def _estimate(self) -> None:
        """Report the strategy's regret, where it states one, and count how often it is low enough to end the search."""
        if not isinstance(self._asked, StatesRegret):
            return
        found = self._asked.regret()
        if found is None:
            return
        self._regret = found
        until = self.options.until
        self._low = self._low + 1 if until is not None and found.share <= until else 0
        self.log.emit(found)

    def _send(self, batch: Sequence[Trace]) -> None:
        """Have a batch measured, and log the last trials of the one before."""
        log, watch = self.log, self._given.watch
        first = len(log.outcomes)
        known = [self._past.take(t.program) for t in batch]
        new = [t.program for t, outcome in zip(batch, known, strict=True) if outcome is None]
        if new and self._past.outcomes and not self._diverged:
            self._diverged = True
            log.emit(Diverged(len(self._past.outcomes)))
        if new and watch is not None and watch.yardstick is None:
            for _, n in [x for x in log.ranked_as_measured() if log.outcomes[x[1]].scale == 1.0][:1]:
                watch.begin(log.traces[n].program, log.outcomes[n])
        scale = 1.0 if watch is None else watch.scale
        best = None if log.best_seconds is None else scale * log.best_seconds
        answers = self._given.runner.measure(new, best) if new else iter(())
        self._open = _Batch(batch, known, answers, first)
        self._take_behind()

    def _measure(self) -> None:
        """Log the trials of the batch under way, as many as the budget allows, and settle the new ones.

        Where several programs are timed at once, the last ones of a batch come behind the proposals for the next one: the
        machines would wait for these otherwise.
        """
        log, watch = self.log, self._given.watch
        now, self._open = self._open, _Batch()
        batch, known, answers = now.traces, now.known, now.answers
        fresh, open_ = 0, list[int]()
        last = len(batch) - self._later(len(batch))
        for n, (trace, outcome) in enumerate(zip(batch, known, strict=True)):
            if outcome is None and fresh and self._late():
                break
            if n == last and last < len(batch):
                self._behind = _Batch(batch[n:], known[n:], answers)
                break
            fresh += outcome is None
            if self._take(trace, outcome, answers) and outcome is None:
                open_.append(len(log.outcomes) - 1)
                if watch is not None and watch.due:
                    self._settle(watch, open_)
                    open_ = []
        if watch is not None:
            self._settle(watch, open_)

    def _settle(self, watch: Watch, numbers: Sequence[int]) -> None:
        """Correct these outcomes if the machine was slow in a part of the time since the last look."""
        log = self.log
        valid = [n for n in numbers if log.outcomes[n].seconds is not None]
        if valid and watch.yardstick is None:
            first = valid.pop(0)
            watch.begin(log.traces[first].program, log.outcomes[first])
        if not valid:
            return
        look = self._look(watch, valid)
        best = log.best_seconds or 0.0
        for n in valid:
            if look.same:
                self._correct(n, self._divided(watch, n, log.outcomes[n], look))
            else:
                contends = (log.outcomes[n].seconds or 0.0) / look.worst <= GIVE_UP * best
                self._settle_alone(watch, n, TURNS if contends else 1)
        self._follow(watch)
        self._reclaim(watch, BATCH)

    def _settle_alone(self, watch: Watch, number: int, most: int) -> None:
        """Measure a trial again until the machine is as fast before as after it, or `most` times."""
        log = self.log
        first = log.outcomes[number]
        assert first.seconds is not None
        settled, turns, same = first, 0, False
        while not same and settled.seconds is not None and turns < most:
            outcome = watch.again(log.traces[number].program)
            look = self._look(watch, [number])
            turns, same = turns + 1, look.same
            settled = self._divided(watch, number, outcome, look)
        # Other work only adds time: a longer one says nothing new.
        self._correct(number, first if settled.seconds is not None and settled.seconds > first.seconds else settled)

    def _divided(self, watch: Watch, number: int, outcome: Outcome, look: Look) -> Outcome:
        """The outcome of a trial between two looks. If they differ, the factor is the less of them: its time is no less than
        the true one, which remains uncertain."""
        found = watch.corrected(outcome, min(look.before, look.after))
        self.log.hopes.pop(number, None)
        if found.seconds is not None and found.scale < look.worst:
            self.log.hopes[number] = found.seconds * found.scale / look.worst
        return found

    def _correct(self, number: int, outcome: Outcome) -> None:
        if outcome != self.log.outcomes[number]:
            self.log.corrected(number, outcome)

    def _look(self, watch: Watch, unsettled: Sequence[int]) -> Look:
        """Look at the machine, and tell what has changed. If it is faster than ever before, all settled trials were measured
        on a slower one."""
        log, told = self.log, list[float]()

        def tell(factor: float) -> None:
            told.append(factor)
            log.emit(Drifted(factor))

        look = watch.look(tell)
        if told and watch.calm:
            log.emit(Settled(told[0], look.waited, len(unsettled)))
        elif not look.same:
            log.emit(Settled(look.before, 0.0, len(unsettled)) if watch.calm else Slowed(look.after, look.memory))
        if look.revised != 1.0:
            log.hopes = {n: hope / look.revised for n, hope in log.hopes.items()}
            for _, n in log.ranked():
                if n not in unsettled:
                    outcome = log.outcomes[n]
                    self._correct(n, watch.corrected(outcome, outcome.scale * look.revised))
        if look.unseen != 1.0:
            for seconds, n in log.ranked():
                if n not in unsettled:
                    log.hopes[n] = log.hopes.get(n, seconds) / look.unseen
        return look

    def _reclaim(self, watch: Watch, most: int) -> None:
        """Measure trials again whose time is uncertain, while one of them may be the best and the machine is undisturbed; at
        most so many, those first that may be the fastest."""
        for _ in range(most):
            best = self.log.best_seconds or 0.0
            found = next((n for hope, n in self.log.ranked_by_hope() if hope < best), None)
            if found is None or not watch.calm:
                return
            self._settle_alone(watch, found, 1)

    def _follow(self, watch: Watch) -> None:
        """Make the best trial the yardstick, if it can be. One whose time was divided, or was longer than need be, has its
        second time from now on."""
        log = self.log
        n = log.best()
        if n is None or n in self._unfollowed:
            return
        was = log.outcomes[n]
        again = watch.follow(log.traces[n].program, was)
        if again is not None and watch.yardstick is not log.traces[n].program:
            self._unfollowed.add(n)
            if again.seconds is None or was.scale != 1.0 or again.seconds < (was.seconds or 0.0):
                self._correct(n, again)

    def _recall(self) -> None:
        """The best recorded trials of the resumed search that it did not choose again are among its trials, too.

        It chooses fewer than there are where it has fewer trials than before, or is interrupted, or chooses differently.
        """
        for seconds, key in self._past.fastest():
            if len(ahead := self.log.ranked()) >= FINALISTS and ahead[FINALISTS - 1][0] <= seconds:
                break
            try:
                trace = self._given.space.replay(self._past.decisions[key], np.random.default_rng(0))
            except ScheduleRefusal:
                continue  # recorded under other conditions, or before the space was changed
            if key in keys_of(trace.program) and (outcome := self._past.take(trace.program)) is not None:
                self.log.add(trace, outcome)

    def _join(self) -> None:
        """Try a schedule that selects among candidates for ranges of sizes, if several kernels are asked for."""
        given, log = self._given, self.log
        if given.expand is None or self.options.kernels == 1 or not given.program.dims:
            return
        candidates = [
            Candidate(t, tuple(s / o.scale for s in o.at))
            for t, o in zip(log.traces, log.outcomes, strict=True)
            if o.seconds is not None and o.at
        ]
        self._dispatch = selected(
            given.program,
            self._sizing,
            candidates,
            self.options.kernels,
            given.expand,
            lambda trace, sizes: modelled(trace.program, sizes, given.target),
            self.options.objective,
        )
        if self._dispatch is not None and not given.holds(self._dispatch.trace):
            self._dispatch = None
        if self._dispatch is not None:
            for outcome in given.runner.measure([self._dispatch.trace.program], None):
                if not isinstance(outcome, Late):  # one that is alone is waited for
                    log.measured(self._dispatch.trace, outcome)

    def _slowdown(self) -> Callable[[Outcome], float] | None:
        """How many times longer than the fastest trial there an outcome takes at the timed sizes: in the mean, or at most.
        None where no outcome has times at each size."""
        known = [[s / o.scale for s in o.at] for o in self.log.outcomes if o.at]
        if not known:
            return None
        least = np.array(known).min(axis=0)
        worst = self.options.objective == "worst"

        def slowdown(outcome: Outcome) -> float:
            if not outcome.at:
                return math.inf
            each = np.array(outcome.at) / outcome.scale / least
            return float(each.max() if worst else each.mean())

        return slowdown

    def finish(self, interrupted: bool) -> TuneResult:
        """Compare and prove the best few. An interrupted search gives its result so far."""
        log = self.log
        if not interrupted:
            try:
                self._collect(wait=True)
            except KeyboardInterrupt:
                interrupted = True
        self._recall()
        compared, watch = Compared([]), self._given.watch
        if not interrupted:
            try:
                self._join()
                if watch is not None and log.hopes:
                    watch.rested()
                    self._reclaim(watch, len(log.hopes))
                joined = [
                    n
                    for n, (t, o) in enumerate(zip(log.traces, log.outcomes, strict=True))
                    if self._dispatch is not None and t is self._dispatch.trace and o.seconds is not None
                ]
                compared = final(log, self._given.runner, watch, self._slowdown() if self._even else None, joined)
            except KeyboardInterrupt:
                interrupted = True
        # Whoever interrupts waits for nothing: what was found is right by the reference, and is not given up for a proof.
        best, verdict, wrong, cut = judged(log, compared.times, None if interrupted else self._given.verify)
        interrupted = interrupted or cut
        records = self._given.records
        if records is not None and records.unkept is not None:
            records.add_all(())  # there may be room by now
        elapsed = self._given.clock() - self._started
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
            unkept=None if records is None else records.unkept,
            scale=compared.scale,
            memory=compared.memory,
            alike=compared.alike,
            band=compared.band,
            within=self._dispatch.within if best and self._dispatch and best[0] is self._dispatch.trace else None,
        )
