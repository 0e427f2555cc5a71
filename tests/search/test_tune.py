"""The tuning loop with an artificial runner: records, events, interrupts, failures, bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

import pytest

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.proof.equivalence.validate import Invalid, Report, Valid
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.database import Database, Queue
from tensorc_dsl.tuning.records.shipped import Shipped
from tensorc_dsl.tuning.records.trial import program_key, target_key
from tensorc_dsl.tuning.search.events import (
    Comparing,
    Event,
    Exhausted,
    Finished,
    Informed,
    Learnt,
    Measured,
    Proposed,
    Started,
)
from tensorc_dsl.tuning.search.expansion import SpaceLike
from tensorc_dsl.tuning.search.log import SearchInput
from tensorc_dsl.tuning.search.options import SearchChanges, SearchOptions
from tensorc_dsl.tuning.search.plausible import Watch
from tensorc_dsl.tuning.search.several import tune_all
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.strategy import Setting, Strategy, strategies, strategy_of
from tensorc_dsl.tuning.search.tune import Search, TuneResult
from tests.search.landscape import FewSpace, TileSpace

TASK = Program("task", (), (), ())
TARGET = Target()


def time_of(program: Program) -> float:
    """A time from the tiles in the program's notes, as the made-up traces leave them."""
    j = dict(program.annotations).get("j", "(1, 1, 1, 1)")
    return 1e-3 / int(str(j).strip("()").split(",")[-1])


@dataclass
class FakeRunner:
    """Answers by `time_of`; can fail, be interrupted or break at a given measurement."""

    fail: tuple[int, ...] = ()
    interrupt_at: int | None = None
    break_at: int | None = None
    lucky: int | None = None
    measured: int = 0
    compared: list[list[Program]] = field(default_factory=list[list[Program]])
    flaky: frozenset[str] = frozenset()
    slow_looks: int = 0

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        for p in programs:
            n, self.measured = self.measured, self.measured + 1
            if n == self.interrupt_at:
                raise KeyboardInterrupt
            if n == self.break_at:
                raise ZeroDivisionError
            if n in self.fail:
                yield Outcome(Status.CRASH, message="SIGSEGV")
            else:
                seconds = 1e-9 if n == self.lucky else time_of(p)
                yield Outcome(Status.OK, seconds, (seconds,))

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        self.compared.append(list(programs))
        slower = 3.0 if len(self.compared) <= self.slow_looks else 1.0
        return [
            Outcome(Status.WRONG_RESULT)
            if program_key(p) in self.flaky
            else Outcome(Status.OK, slower * time_of(p), (slower * time_of(p),))
            for p in programs
        ]


def found(given: SearchInput) -> TuneResult:
    """What one search finds."""
    (result,) = tune_all([Search(given)], [1.0])
    return result


def run(
    runner: FakeRunner,
    database: Database | None = None,
    verify: Callable[[Trace], Report] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    made_by: Callable[[Trace], Mapping[str, str]] = lambda _: {},
    watch: Watch | None = None,
    task: Program = TASK,
    space: SpaceLike | None = None,
    target: Target = TARGET,
    package: Callable[[], Shipped | Diagnostic] | None = None,
    **options: Unpack[SearchChanges],
) -> tuple[TuneResult, list[Event]]:
    events: list[Event] = []
    result = found(
        SearchInput(
            space=space or TileSpace(),
            program=task,
            target=target,
            options=SearchOptions(strategy="random", trials=20).but(**options),
            runner=runner,
            threads=2,
            records=None if database is None else Queue(lambda: database),
            on_event=events.append,
            verify=verify,
            made_by=made_by,
            shipped=package,
            watch=watch,
            clock=clock,
        )
    )
    return result, events


def test_every_trial_is_told_and_recorded(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        result, events = run(FakeRunner(fail=(0, 7)), db)
        rows = db.trials(program_key(TASK), target_key(TARGET, 2))
    assert result.trials == 20 and result.statuses == {"crash": 2, "ok": 18} and not result.interrupted
    assert result.best is not None and result.best_seconds == time_of(result.best.program)
    assert result.best_seconds == min(o.seconds for o in result.outcomes if o.seconds is not None)
    trials = [r for r in rows if r.phase == "trial"]
    assert [r.trial for r in trials] == list(range(20))
    assert [r.status for r in trials] == [str(o.status) for o in result.outcomes]
    assert [r.decisions for r in trials] == [dict(t.decisions) for t in result.traces]
    assert [r.trace for r in trials] == [t.text for t in result.traces]
    assert len([r for r in rows if r.phase == "final"]) == 5
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    measured = [e for e in events if isinstance(e, Measured)]
    assert [e.trial for e in measured] == list(range(20))
    assert measured[0].best_seconds is None
    bests = [e.best_seconds for e in measured[1:] if e.best_seconds is not None]
    assert bests == sorted(bests, reverse=True)
    assert sum(len(e.traces) for e in events if isinstance(e, Proposed)) == 20


def test_a_record_says_what_it_is_about(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        run(FakeRunner(), db, trials=3, made_by=lambda t: {"module m": t.text[:1]})
        run(FakeRunner(), db, trials=3)
        rows = db.trials(program_key(TASK), target_key(TARGET, 2))
        workloads, targets = db.subjects()
    assert len({r.run for r in rows}) == 2
    assert [r.modules for r in rows[:3]] == [{"module m": "s"}] * 3
    assert {r.fingerprint for r in rows} == targets.keys()
    assert workloads == {program_key(TASK): format_program(TASK)}
    assert '"l3":8388608' in next(iter(targets.values()))
    assert program_key(replace(TASK, name="other")) == program_key(TASK)


def test_a_search_tells_what_it_learns_from(tmp_path: Path) -> None:
    def told(name: str, strategy: str) -> list[Event]:
        _, events = run(FakeRunner(), db, trials=10, task=replace(TASK, name=name), strategy=strategy)
        return [e for e in events if isinstance(e, Informed)]

    with Database.open(tmp_path / "r.sqlite") as db:
        assert told("first", "bayes") == []
        assert told("first", "bayes") == []
        assert told("second", "bayes") == [Informed(20, 1)]
        assert told("third", "random") == []
        assert told("fourth", "bayes") == [Informed(40, 1)]


def test_the_finalists_are_the_fastest_and_decide() -> None:
    runner = FakeRunner(lucky=3)
    result, _ = run(runner)
    finalists = runner.compared[0]
    assert runner.compared == [finalists] * 3  # they contradict the trial, again and again
    assert len(finalists) == 5 and result.traces[3].program in finalists
    assert result.best_seconds == min(map(time_of, finalists))
    assert result.best is not result.traces[3]


def test_finalists_that_fail_on_a_second_look_do_not_win() -> None:
    first, _ = run(FakeRunner())
    ranked = sorted((o.seconds or 0.0, n) for n, o in enumerate(first.outcomes))
    bad = [n for _, n in ranked[:6]]
    runner = FakeRunner(flaky=frozenset(program_key(first.traces[n].program) for n in bad))
    again, _ = run(runner)
    assert [len(c) for c in runner.compared] == [5, 5]
    assert again.best is not None and again.best.text not in {first.traces[n].text for n in bad}
    assert again.best_seconds == ranked[6][0]


def test_what_a_proof_refutes_does_not_win(tmp_path: Path) -> None:
    first, _ = run(FakeRunner())
    ranked = [n for _, n in sorted((o.seconds or 0.0, n) for n, o in enumerate(first.outcomes))]
    refuted = Invalid(Diagnostic("E0805", "it differs", None))
    for count in (1, 6, len(ranked)):
        bad = {first.traces[n].text for n in ranked[:count]}
        with Database.open(tmp_path / f"{count}.sqlite") as database:
            result, _ = run(FakeRunner(), database, verify=lambda t, bad=bad: refuted if t.text in bad else Valid())
            best = database.best(program_key(TASK), target_key(TARGET, 2))
        assert {t.text for t, _ in result.wrong} == bad
        if count == len(ranked):
            assert result.best is None and result.verdict is None and best is None
        else:
            assert result.best is not None and result.best.text == first.traces[ranked[count]].text
            assert result.verdict == Valid()
            assert best is not None and best.trace not in bad


def test_a_verdict_that_is_cut_short_takes_nothing_away() -> None:
    def impatient(_: Trace) -> Report:
        raise KeyboardInterrupt

    result, _ = run(FakeRunner(), verify=impatient)
    assert result.best is not None and result.verdict is None
    assert result.best.text == run(FakeRunner())[0].best.text  # type: ignore[union-attr]


@pytest.mark.parametrize(("slow", "looks", "factor"), [(0, 1, 1.0), (1, 2, 1.0), (9, 3, 3.0)])
def test_a_disturbed_comparison_is_repeated(slow: int, looks: int, factor: float) -> None:
    runner = FakeRunner(slow_looks=slow)
    result, _ = run(runner)
    assert len(runner.compared) == looks
    assert result.best is not None
    assert result.best_seconds == factor * time_of(result.best.program)


def test_a_disturbance_of_the_best_finalist_does_not_select_another() -> None:
    """Others took as long as in their trials, so the comparison was taken for an undisturbed one."""

    @dataclass
    class Disturbed(FakeRunner):
        def compare(self, programs: Sequence[Program]) -> list[Outcome]:
            found = super().compare(programs)
            if len(self.compared) > 1:
                return found
            least = min(map(time_of, programs))
            return [
                replace(o, seconds=4.0 * (o.seconds or 0.0)) if time_of(p) == least else o
                for p, o in zip(programs, found, strict=True)
            ]

    quiet, _ = run(FakeRunner())
    runner = Disturbed()
    result, _ = run(runner)
    assert len(runner.compared) == 2
    assert quiet.best is not None and result.best is not None and result.best.text == quiet.best.text
    assert result.best_seconds == quiet.best_seconds


def test_where_nothing_works_there_is_no_best() -> None:
    result, events = run(FakeRunner(fail=tuple(range(20))))
    assert (result.best, result.best_seconds, result.statuses) == (None, None, {"crash": 20})
    assert isinstance(events[-1], Finished) and events[-1].best_seconds is None


def test_an_interrupt_keeps_what_there_is(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        result, events = run(FakeRunner(interrupt_at=11), db)
        assert len(db.trials(program_key(TASK), target_key(TARGET, 2))) == 11
    assert result.interrupted and result.trials == 11
    assert result.best_seconds == min(o.seconds for o in result.outcomes if o.seconds is not None)
    assert isinstance(events[-1], Finished) and events[-1].interrupted


def test_refusals_are_counted_and_are_no_trials() -> None:
    result, _ = run(FakeRunner(), trials=100)
    assert result.trials == 100 and result.refusals > 0  # a twentieth of the prior is refused


def test_an_interrupt_before_anything() -> None:
    result, _ = run(FakeRunner(interrupt_at=0))
    assert result.interrupted and result.best is None and result.trials == 0


def test_a_bug_stops_the_search_and_keeps_the_records(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        with pytest.raises(ZeroDivisionError):
            run(FakeRunner(break_at=4), db)
        assert len(db.trials(program_key(TASK), target_key(TARGET, 2))) == 4


def test_a_small_space_ends_early() -> None:
    result = found(
        SearchInput(
            space=FewSpace(3), program=TASK, target=TARGET, options=SearchOptions(), runner=FakeRunner(), threads=1
        )
    )
    assert result.trials == 3 and result.best is not None
    assert result.exhausted == Exhausted(3, True)


@pytest.mark.parametrize("strategy", strategies())
def test_a_space_of_one_program_is_told(strategy: str) -> None:
    events: list[Event] = []
    result = found(
        SearchInput(
            space=FewSpace(1),
            program=TASK,
            target=TARGET,
            options=SearchOptions(9, strategy=strategy),
            runner=FakeRunner(),
            threads=1,
            on_event=events.append,
        )
    )
    kinds = [type(e) for e in events]
    assert kinds == [Started, Proposed, Measured, Learnt, Exhausted, Comparing, Finished]
    assert result.exhausted == Exhausted(1, True)


def test_a_search_that_has_its_trials_exhausts_nothing() -> None:
    result, events = run(FakeRunner())
    assert result.exhausted is None
    assert [e.finalists for e in events if isinstance(e, Comparing)] == [5]


def test_a_space_that_is_left_early_is_not_called_whole() -> None:
    """`TRIES` expansions without anything new end a request, whatever is left."""
    explorer = Explorer(TileSpace(), 0, "task", Target())
    trace = explorer.draw()
    assert trace is not None
    assert not explorer.followed([trace])


def test_no_trials_and_wrong_arguments() -> None:
    result, _ = run(FakeRunner(), trials=0)
    assert result.trials == 0 and result.best is None
    with pytest.raises(ValueError, match="-1"):
        run(FakeRunner(), trials=-1)
    with pytest.raises(KeyError):
        run(FakeRunner(), strategy="clairvoyant")


def test_the_clock_is_asked_not_the_wall() -> None:
    ticks = iter(range(1000))
    result, _ = run(FakeRunner(), trials=8, clock=lambda: float(next(ticks)))
    assert result.elapsed_seconds == 5.0


@dataclass
class AtSizes(FakeRunner):
    """Two schedules for each size: one saves little of a long call and takes three times as long for a short one."""

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        for p in programs:
            at = (1e-6, 1e-3) if "4" in str(dict(p.annotations)["j"]) else (3e-6, 0.95e-3)
            seconds = sum(at) / 2
            yield Outcome(Status.OK, seconds, (seconds,), at=at)

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        return list(self.measure(programs, None))


@pytest.mark.parametrize("weights", [(), (1.0, 1.0)])
def test_one_kernel_is_for_all_sizes_alike_or_for_the_mean_call(
    weights: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    factory = strategy_of("random")

    def listening(setting: Setting) -> Strategy:
        asked = factory(setting)
        tell = asked.tell

        def hear(trace: Trace, outcome: Outcome) -> None:
            told.append(outcome.seconds or 0.0)
            tell(trace, outcome)

        monkeypatch.setattr(asked, "tell", hear)
        return asked

    monkeypatch.setattr("tensorc_dsl.tuning.search.tune.strategy_of", lambda _: listening)
    task = replace(TASK, dims=(Dim("M", 1, 512, (1, 512), weights=weights),))
    result, _ = run(AtSizes(), task=task, trials=40)
    assert result.best is not None and len(told) == 40
    short = "4" in str(dict(result.best.program.annotations)["j"])
    assert short == (not weights)
    of_short = [
        t for t, trace in zip(told, result.traces, strict=True) if "4" in str(dict(trace.program.annotations)["j"])
    ]
    assert 0 < len(of_short) < 40
    assert (max(of_short) < min({*told} - {*of_short})) == (not weights)
