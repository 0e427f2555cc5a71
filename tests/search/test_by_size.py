"""Strategies for several sizes, which learn from each trial; and times at sizes that were not timed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import Sizing
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.by_size import BySize, by_size
from tensorc_dsl.tuning.search.interpolation import places, predict
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.strategy import Setting, StatesRegret, strategies, strategy_of
from tests.search.landscape import TileSpace

SIZES = [{"M": n} for n in (1, 4, 16, 64)]
FOUND = Sizing((), tuple(SIZES), (0.25,) * 4)


def at(trace: Trace) -> tuple[float, ...]:
    """Tiles of one row and of 64 are the best for each end of the sizes."""
    wanted = math.log2(max(1, math.prod(d for d in trace.decisions.values() if isinstance(d, int)) or 1))
    return tuple(1e-3 * (1 + abs(wanted - 2 * k)) for k in range(4))


@pytest.mark.corpus
@pytest.mark.parametrize("name", strategies())
@pytest.mark.parametrize("even", [False, True])
def test_all_sizes_learn_from_each_trial(name: str, even: bool) -> None:
    setting = Setting(Explorer(TileSpace(), 0, "task", Target()), 48)
    asked = by_size(strategy_of(name), setting, FOUND, even)
    assert isinstance(asked, BySize)
    assert isinstance(asked, StatesRegret) == (name == "bayes")
    seen: set[str] = set()
    for turn in range(6):
        batch = asked.propose(8, 1 - turn / 6)
        assert batch and not seen & {t.text for t in batch}
        seen |= {t.text for t in batch}
        for trace in batch:
            here = at(trace)
            asked.tell(trace, Outcome(Status.OK, sum(here) / 4, (sum(here) / 4,) * 9, at=here))
        if isinstance(asked, StatesRegret):
            asked.regret()


class _Turn:
    """A strategy that counts its turns."""

    def __init__(self) -> None:
        self.turns = 0

    def propose(self, count: int, left: float) -> list[Trace]:
        self.turns += 1
        return [None] * count  # type: ignore[list-item]

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        pass


def test_a_size_has_turns_by_its_part_of_the_time() -> None:
    few = [_Turn() for _ in range(4)]
    asked = BySize(few, FOUND.weights, even=False)
    for _ in range(50):
        asked.propose(8, 1.0)
        asked.tell(None, Outcome(Status.OK, 1.0, (1.0,), at=(0.1, 0.1, 0.8, 3.0)))  # type: ignore[arg-type]
    shares = np.array([m.turns for m in few]) / 100
    assert shares.min() >= 0.05 and shares[3] == max(shares) > 0.5


def test_predictions_follow_the_rounds_of_tiles() -> None:
    timed, others = places(SIZES), [1, 3, 9, 17, 33, 64]
    tiles = lambda n, rows: -(-n // rows) * (1.0 + 0.2 * rows)  # noqa: E731
    rows = [1, 2, 8, 16]
    rng = np.random.default_rng(0)
    there = np.array([[tiles(x["M"], r) for x in SIZES] for r in rows])
    then = np.array([[tiles(n, r) for n in others] for r in rows])
    # The model misses a speed that changes slowly.
    seconds = there * 1e-6 * np.exp(0.05 * timed[:, 0] + rng.normal(0, 0.002, there.shape))
    flat = (np.ones_like(there), np.ones_like(then))
    found = predict(timed, places([{"M": n} for n in others]), seconds, [flat, (there, then)])
    true = then * 1e-6 * np.exp(0.05 * np.log2(others))
    assert np.abs(found.seconds / true - 1).max() < 0.06
    assert (np.abs(found.seconds / true - 1) <= found.within).mean() > 0.9
    assert found.within.max() < 0.3


def test_intervals_have_their_share() -> None:
    rng = np.random.default_rng(1)
    held: list[bool] = []
    for _ in range(60):
        x = np.arange(0, 10.0)
        near = np.exp(-np.abs(x[:, None] - x) / 4) * (1 + np.abs(x[:, None] - x) / 4)
        truth = 0.3 * rng.multivariate_normal(np.zeros(10), near, 12)
        known = [0, 3, 6, 9]
        base = np.ones((12, 10))
        seconds = np.exp(truth)
        found = predict(x[known, None], x[:, None], seconds[:, known], [(base[:, known], base)])
        rest = [k for k in range(10) if k not in known]
        held += (np.abs(found.seconds / seconds - 1) <= found.within)[:, rest].ravel().tolist()
    assert 0.9 < np.mean(held) <= 1.0
