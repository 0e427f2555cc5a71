"""Tests of resumed searches: nothing is measured twice, and the decisions are those of an uninterrupted search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tensorc_dsl.tuning.search.events import Diverged, Event, Finished, Measured, Resumed
from tensorc_dsl.tuning.search.strategy import strategies
from tensorc_dsl.tuning.search.tune import TuneResult
from tests.search.test_tune import TARGET, TASK, FakeRunner, run

KEYS = program_key(TASK), target_key(TARGET, 2)


@dataclass
class Dying(FakeRunner):
    """A runner that ends the process, as far as the search can tell, before its n-th measurement; it counts programs."""

    dies_at: int = 1 << 30
    seen: list[str] = field(default_factory=list[str])

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        for p, outcome in zip(programs, super().measure(programs, best), strict=True):
            if len(self.seen) == self.dies_at:
                raise SystemExit
            self.seen.append(program_key(p))
            yield outcome


def told(events: list[Event]) -> list[tuple[int, str, Outcome]]:
    return [(e.trial, e.trace.text, e.outcome) for e in events if isinstance(e, Measured)]


@cache
def uncut(strategy: str, trials: int, fail: tuple[int, ...] = ()) -> tuple[TuneResult, list[Event]]:
    """A search that nothing ends."""
    return run(Dying(fail=fail), strategy=strategy, trials=trials, seed=5)


@pytest.mark.corpus
@pytest.mark.parametrize("strategy", strategies())
@pytest.mark.parametrize("dies_at", [0, 1, 7, 8, 13, 39])
def test_a_search_killed_anywhere_goes_on_as_if_it_had_not_been(tmp_path: Path, strategy: str, dies_at: int) -> None:
    whole, events = uncut(strategy, 40, (2, 9))
    first, second = Dying(dies_at=dies_at, fail=(2, 9)), Dying()
    second.fail = tuple(n - dies_at for n in (2, 9) if n >= dies_at)
    with Database.open(tmp_path / "r.sqlite") as db:
        with pytest.raises(SystemExit):
            run(first, db, strategy=strategy, trials=40, seed=5)
        resumed, later = run(second, db, strategy=strategy, trials=40, seed=5, resume=True)
        rows = db.trials(*KEYS)
    assert told(later) == told(events)
    assert [t.text for t in resumed.traces] == [t.text for t in whole.traces]
    assert first.seen + second.seen == [program_key(t.program) for t in whole.traces]  # none lost, none twice
    assert [r.trial for r in rows if r.phase == "trial"] == list(range(40))
    assert len({r.run for r in rows}) == 1
    assert [e.trials for e in later if isinstance(e, Resumed)] == [dies_at]
    assert resumed.best is not None and whole.best is not None and resumed.best.text == whole.best.text


def test_a_search_killed_again_and_again(tmp_path: Path) -> None:
    whole, _ = run(FakeRunner(), trials=40)
    seen: list[str] = []
    with Database.open(tmp_path / "r.sqlite") as db:
        for _ in range(20):
            runner = Dying(dies_at=3)
            try:
                run(runner, db, trials=40, resume=True)
            except SystemExit:
                seen += runner.seen
            else:
                seen += runner.seen
                break
    assert seen == [program_key(t.program) for t in whole.traces]


def test_a_search_that_is_done_measures_nothing_more_but_its_finalists(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        run(FakeRunner(), db)
        again, longer = Dying(), Dying()
        run(again, db, resume=True)
        run(longer, db, trials=30, resume=True)
    assert again.seen == [] and len(again.compared) == 1
    assert len(longer.seen) == 10


def test_only_the_last_search_of_the_same_seed_and_strategy_goes_on(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        run(FakeRunner(), db, trials=16, seed=1)
        run(FakeRunner(), db, trials=8, seed=0)
        run(FakeRunner(), db, trials=16, seed=0)
        _, events = run(FakeRunner(), db, trials=16, seed=0, resume=True)
        _, other = run(FakeRunner(), db, trials=16, seed=2, resume=True)
        runs = [key for key, _ in itertools.groupby(r.run for r in db.trials(*KEYS))]
    assert [e.trials for e in events if isinstance(e, Resumed)] == [16]
    assert [e.trials for e in other if isinstance(e, Resumed)] == [0]
    assert len(runs) == len(set(runs)) == 4  # what the resumed one records follows the search that it goes on with


def test_records_of_another_space_are_told_of_and_left(tmp_path: Path) -> None:
    runner = Dying()
    with Database.open(tmp_path / "r.sqlite") as db:
        run(FakeRunner(), db, trials=16)
        old = [replace(r, program_key=f"old {r.trial}", created=0.0) for r in db.trials(*KEYS) if r.phase == "trial"]
        db.add_all([replace(r, run="z" * 32) for r in old])
        _, events = run(runner, db, trials=16, resume=True)
    assert [e.trials for e in events if isinstance(e, Diverged)] == [16]
    assert len(runner.seen) == 16


def test_a_trial_that_was_measured_again_is_what_it_was_then(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        run(FakeRunner(), db, trials=8)
        (third,) = [r for r in db.trials(*KEYS) if r.trial == 3 and r.phase == "trial"]
        db.add(replace(third, phase="again", seconds=7.0, times=(14.0,), scale=2.0, created=0.0))
        result, _ = run(FakeRunner(), db, trials=8, resume=True)
    assert (result.outcomes[3].seconds, result.outcomes[3].scale) == (7.0, 2.0)


def test_damaged_and_old_records_do_not_stop_a_search(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        db.add(Trial(*KEYS, "task", "random", 0, 0, "ok", {}, "x", "p", 1.0, (1.0,)))
        db._connection.execute("UPDATE trials SET decisions = '{'")
        db.add(Trial(*KEYS, "task", "random", 0, 0, "ok", {}, "x", "p", 1.0, (1.0,)))
        result, events = run(FakeRunner(), db, resume=True)
    assert result.trials == 20
    assert [e.trials for e in events if isinstance(e, Resumed)] == [0]


# --- time ------------------------------------------------------------------------------------------------------------


@dataclass
class Hour:
    """A clock that moves a second whenever it is asked."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize(("budget", "most"), [(0.0, 0), (5.0, 8), (30.0, 40)])
def test_a_budget_ends_a_search_which_keeps_what_it_has(budget: float, most: int) -> None:
    result, events = run(FakeRunner(), trials=1000, budget=budget, clock=Hour())
    assert result.trials <= most and (result.trials > 0) == (most > 0)
    assert not result.interrupted and isinstance(events[-1], Finished)
    assert (result.best is not None) == (most > 0)


def test_trials_end_a_search_before_its_budget() -> None:
    assert run(FakeRunner(), trials=9, budget=1e9)[0].trials == 9


@pytest.mark.parametrize("budget", [-1.0, float("nan")])
def test_a_budget_is_no_negative_time(budget: float) -> None:
    with pytest.raises(ValueError, match="budget"):
        run(FakeRunner(), budget=budget)


def test_what_is_recorded_is_not_measured_again_whatever_was_asked_before_it(tmp_path: Path) -> None:
    runner = Dying()
    with Database.open(tmp_path / "r.sqlite") as db:
        run(FakeRunner(), db, trials=16)
        db.remove([k.row for k in db.all() if isinstance(k.trial, Trial) and k.trial.trial < 8])
        result, events = run(runner, db, trials=16, resume=True)
    assert [e.trials for e in events if isinstance(e, Diverged)] == [8]
    assert result.trials == 16 and len(runner.seen) == 8


@pytest.mark.corpus
@pytest.mark.parametrize("strategy", ["bayes", "random"])
@pytest.mark.parametrize("trials", [1, 8, 39, 60])
def test_no_recorded_trial_is_lost_to_the_best(tmp_path: Path, strategy: str, trials: int) -> None:
    """A resumed search of fewer trials, or one that chooses differently, has the best of those before among its own."""
    with Database.open(tmp_path / "r.sqlite") as db:
        whole, _ = run(Dying(), db, strategy=strategy, trials=40, seed=5)
        runner = Dying()
        resumed, _ = run(runner, db, strategy=strategy, trials=trials, seed=5, resume=True)
    assert whole.best_seconds is not None and resumed.best_seconds is not None
    assert resumed.best_seconds <= whole.best_seconds
    assert not set(runner.seen) & {program_key(t.program) for t in whole.traces}  # nothing is measured twice
    assert trials <= resumed.trials <= trials + 5


def test_records_of_other_conditions_are_not_among_the_trials(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        run(Dying(), db, trials=20)
        db.add_all(
            replace(r, program_key="other", seconds=1e-9, times=(1e-9,), created=0.0, trial=99)
            for r in db.trials(*KEYS)[:1]
        )
        resumed, _ = run(Dying(), db, trials=4, resume=True)
    assert resumed.best_seconds is not None and resumed.best_seconds > 1e-8
