"""Every draw can be moved, whatever module it comes from (trap 20: categoricals and partitioned tiles that never did)."""

from __future__ import annotations

import pytest

from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace import handlers
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.space import Explorer, neighbours
from tensorc_dsl.tuning.search.strategy import Setting, strategies, strategy_of
from tests.interp.spaces import rng, schedule, space

MODULE = """
module users(b: Block) {
    let choice ~ sample_categorical([0, 16, 64, 512])
    let weighted ~ sample_categorical({4: 0.9, 8: 0.05, "x": 0.05})
    let tile ~ sample_partitioned_tile(b.loops[1], 3, partition=1, inner_multiple=4)
    let perfect ~ sample_perfect_tile(b.loops[2], parts=2)
    let count ~ sample_int(1..12)
    let order ~ sample_permutation([1, 2, 3])
    either { annotate(b, "e", 1) } or(0.1) { annotate(b, "e", 2) }
    annotate(b, "choice", choice)
    annotate(b, "weighted", weighted)
    annotate(b, "count", count)
    annotate(b, "order", order[0] * 100 + order[1] * 10 + order[2])
    let [_, j, k] = b.loops
    split(j, tile)
    split(k, perfect)
}

space s for llvm { users }
"""
DRAWS = ("choice", "weighted", "tile", "perfect", "count", "order", "branch")


@pytest.mark.corpus
@pytest.mark.parametrize("name", DRAWS)
def test_moves_reach_every_value_of_a_draw(name: str) -> None:
    s = space(MODULE, n=16, k=12)
    start = s.sample(rng(1))
    seen: set[Decision] = {start.decisions[name]}
    waiting: list[Trace] = [start]
    while waiting:
        trace = waiting.pop()
        for decisions in neighbours(trace):
            if decisions[name] not in seen:
                moved = s.replay(decisions, rng())
                assert moved.decisions == decisions
                seen.add(decisions[name])
                waiting.append(moved)
    assert len(seen) == next(d for d in start.draws if d.name == name).distribution.size()


@pytest.mark.corpus
@pytest.mark.parametrize("strategy", sorted(strategies()))
def test_a_search_tries_every_value_of_users_draws(strategy: str) -> None:
    explorer = Explorer(space(MODULE, n=16, k=12), 0, "task", Target())
    asked = strategy_of(strategy)(Setting(explorer, 96))
    tried: dict[str, set[Decision]] = {name: set() for name in DRAWS}
    sizes: dict[str, int] = {}
    for _ in range(12):
        for trace in asked.propose(8, 1.0):
            for d in trace.draws:
                tried[d.name].add(d.decision)
                sizes[d.name] = d.distribution.size()
            asked.tell(trace, Outcome(Status.OK, 1.0, (1.0,)))
    for name in ("choice", "weighted", "branch", "order"):
        assert len(tried[name]) == sizes[name], name
    for name in ("tile", "perfect", "count"):
        assert len(tried[name]) > sizes[name] / 2, name


def test_places_move_too() -> None:
    s = schedule("let place ~ sample_compute_location(E)", "compute_at(E, place)", compute="chain")
    start = s.sample(rng())
    assert {d["place"] for d in neighbours(start)} | {start.decisions["place"]} == {"root", "i_1", "j_1", "inline"}


def test_true_and_one_are_two_decisions() -> None:
    explorer = Explorer(
        schedule("let x ~ sample_categorical([1, true])", 'annotate(root, "x", x)'), 0, "task", Target()
    )
    found = [explorer.replay({"x": 1}), explorer.replay({"x": True})]
    assert [type(t.decisions["x"]).__name__ for t in found if t is not None] == ["int", "bool"]


def test_hidden_and_conditioned_draws_are_not_moved() -> None:
    s = handlers.block(handlers.condition(space(MODULE, n=16, k=12), {"count": 3}), ["choice"])
    trace = s.sample(rng())
    near = neighbours(trace)
    assert {d["count"] for d in near} == {3}
    assert {d["choice"] for d in near} == {trace.decisions["choice"]}
    explorer = Explorer(s, 0, "task", Target())
    asked = strategy_of("bayes")(Setting(explorer, 32))
    for _ in range(4):
        for t in asked.propose(8, 1.0):
            assert t.decisions["count"] == 3
            asked.tell(t, Outcome(Status.OK, 1.0, (1.0,)))


def test_an_illegal_condition_ends_a_search_without_candidates() -> None:
    s = handlers.condition(space(MODULE, n=16, k=12), {"tile": (1, 1, 1)})
    with pytest.raises(ScheduleRefusal):
        s.sample(rng())
    explorer = Explorer(s, 0, "task", Target())
    assert strategy_of("bayes")(Setting(explorer, 8)).propose(8, 1.0) == []
