"""Tests of several searches that share their trials: the order is a function of the times, and Ctrl-C ends all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.expansion import SpaceLike
from tensorc_dsl.tuning.search.log import SearchInput
from tensorc_dsl.tuning.search.options import SearchOptions
from tensorc_dsl.tuning.search.several import tune_all
from tensorc_dsl.tuning.search.strategies.random import Random
from tensorc_dsl.tuning.search.tune import Search, TuneResult
from tests.search.landscape import FewSpace, TileSpace
from tests.search.test_tune import TARGET, TASK, FakeRunner, time_of


@dataclass
class Scaled(FakeRunner):
    """A machine on which a task takes so many times as long; one that never gets better takes as long whatever is tried."""

    times: float = 1.0
    flat: bool = False
    broken: bool = False

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        for p, outcome in zip(programs, super().measure(programs, best), strict=True):
            if self.broken:
                yield Outcome(Status.CRASH)
                continue
            seconds = self.times * (1e-3 if self.flat else time_of(p))
            yield replace(outcome, seconds=seconds, times=(seconds,))


def searched(
    runners: Sequence[FakeRunner],
    *,
    weights: Sequence[float] | None = None,
    trials: int = 64,
    spaces: Sequence[SpaceLike] | None = None,
    budget: float | None = None,
    shared: int | None = None,
    groups: Sequence[int] | None = None,
) -> tuple[list[TuneResult], list[int]]:
    """The results, and whose turn it was."""
    turns: list[int] = []
    options = SearchOptions(trials, 3, "random", budget)
    searches = [
        Search(
            SearchInput(
                space=spaces[n] if spaces else TileSpace(),
                program=replace(TASK, name=f"task{n}"),
                target=TARGET,
                options=options,
                runner=runner,
                threads=1,
                clock=lambda: 0.0,
            )
        )
        for n, runner in enumerate(runners)
    ]
    return tune_all(searches, weights or [1.0] * len(runners), turns.append, shared, groups), turns


def trials_of(results: list[TuneResult]) -> list[int]:
    return [r.trials for r in results]


def test_groups_have_all_trials_that_are_shared() -> None:
    results, _ = searched([FakeRunner() for _ in range(3)], shared=20, groups=[0, 1, 2])
    assert sum(trials_of(results)) == 20 and min(trials_of(results)) == 6


def test_one_search_is_what_it_is_alone() -> None:
    (result,), _ = searched([FakeRunner()], trials=20)
    assert result.trials == 20 and result.best is not None


def test_all_have_a_first_batch_and_all_trials_are_used() -> None:
    results, turns = searched([Scaled(), Scaled(), Scaled()], trials=16)
    assert turns[:3] == [0, 1, 2]
    assert sum(trials_of(results)) == 48


def test_the_first_batches_leave_trials_for_each_task() -> None:
    """Fewer trials than fill the first batches are shared: no task is without one."""
    results, turns = searched([Scaled(times=100.0), Scaled(), Scaled()], trials=3)
    assert turns[:3] == [0, 1, 2]
    assert [r.trials for r in results] == [3, 3, 3]
    results, _ = searched([Scaled(times=100.0), Scaled(), Scaled()], trials=1)
    assert [r.trials for r in results] == [1, 1, 1]


def test_a_task_that_takes_longer_has_more_trials() -> None:
    results, _ = searched([Scaled(times=1.0), Scaled(times=10.0)])
    few, many = trials_of(results)
    assert few < many and few + many == 128


def test_strategies_are_told_what_is_left_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    def propose(self: Random, count: int, left: float) -> list[Trace]:
        told.append(left)
        return draw(self, count, left)

    draw = Random.propose
    monkeypatch.setattr(Random, "propose", propose)
    _, turns = searched([Scaled(times=1.0), Scaled(times=100.0)], trials=32)
    assert turns.count(0) < turns.count(1)
    assert told == [(64 - 8 * n) / 64 for n in range(8)]


def test_a_weight_counts_as_much_as_time() -> None:
    weighted, turns = searched([Scaled(), Scaled()], weights=[10.0, 1.0])
    longer, same = searched([Scaled(times=10.0), Scaled()])
    assert trials_of(weighted) == trials_of(longer) and turns == same


def test_a_task_that_gets_better_goes_before_one_that_does_not() -> None:
    results, _ = searched([Scaled(times=0.01, flat=True), Scaled()], trials=32)
    flat, better = trials_of(results)
    assert flat < better


def test_a_task_that_never_works_does_not_starve_the_others() -> None:
    results, _ = searched([Scaled(broken=True), Scaled()])
    assert trials_of(results)[0] == 8 and results[0].best is None
    assert results[1].best is not None and results[1].trials == 120


def test_where_none_works_they_take_turns() -> None:
    results, _ = searched([Scaled(broken=True), Scaled(broken=True)])
    assert trials_of(results) == [64, 64]


def test_a_space_that_is_exhausted_leaves_its_trials_to_the_others() -> None:
    results, _ = searched([Scaled(times=99.0), Scaled()], spaces=[FewSpace(3), TileSpace()])
    assert trials_of(results) == [3, 125]
    both, _ = searched([Scaled(), Scaled()], spaces=[FewSpace(3), FewSpace(4)])
    assert trials_of(both) == [3, 4]


def test_the_same_times_make_the_same_turns() -> None:
    first, turns = searched([Scaled(), Scaled(times=2.0), Scaled(times=3.0)])
    again, same = searched([Scaled(), Scaled(times=2.0), Scaled(times=3.0)])
    assert turns == same
    assert [[t.text for t in r.traces] for r in first] == [[t.text for t in r.traces] for r in again]


@pytest.mark.parametrize("at", [0, 5, 30])
def test_an_interrupt_ends_all_and_each_keeps_what_it_has(at: int) -> None:
    results, _ = searched([Scaled(), Scaled(interrupt_at=at)])
    assert all(r.interrupted for r in results)
    assert results[0].best is not None
    assert (results[1].best is not None) == (at > 0)


def test_no_time_is_no_trials() -> None:
    results, turns = searched([Scaled(), Scaled()], budget=0.0)
    assert trials_of(results) == [0, 0] and turns == [0, 1]  # the turns are those of the end
