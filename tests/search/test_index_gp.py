"""The encoding of `index-gp`: a decision is its place in the sorted list of all decisions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.draws.choices import Branch, Categorical, Integer, Permutation
from tensorc_dsl.schedule.trace.draws.tiles import PerfectTile
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.strategies.index_gp import LISTED, List
from tests.search.landscape import TileSpace


def listed(distribution: Distribution, seed: int = 0) -> List:
    one = distribution.sample(np.random.default_rng(seed))
    return List.of(distribution, one, Explorer(TileSpace(), 0, "task", Target()))


@pytest.mark.parametrize(
    ("distribution", "decisions"),
    [
        (PerfectTile(48, 3, 8), [t for t in itertools.product(range(1, 49), repeat=3) if math.prod(t) == 48 and t[2] <= 8]),
        (Categorical(("b", "a", "c"), (1.0, 2.0, 1.0)), ["a", "b", "c"]),
        (Categorical((16, 1, True, "x"), (1.0, 1.0, 1.0, 1.0)), ["x", True, 1, 16]),
        (Integer(-2, 2), [-2, -1, 0, 1, 2]),
        (Permutation(3), sorted(itertools.permutations(range(3)))),
        (Branch((0.5, 0.5)), [0, 1]),
        (Categorical((7,), (1.0,)), [7]),
    ],
)  # fmt: skip
def test_a_decision_is_its_place_in_the_sorted_list(distribution: Distribution, decisions: list[Decision]) -> None:
    for seed in range(3):  # whichever decision the list is built from
        found = listed(distribution, seed)
        assert [(type(d), d) for d in found.decisions] == [(type(d), d) for d in decisions]
        assert [found.index(d) for d in decisions] == list(range(len(decisions)))


def test_the_places_in_a_long_list_are_estimated() -> None:
    tile = PerfectTile(2**12 * 3**5, 4, 2**12 * 3**5)
    assert tile.size() > 5 * LISTED
    found = listed(tile)
    rng = np.random.default_rng(1)
    drawn = sorted(d for d in (tile.sample(rng) for _ in range(400)) if isinstance(d, tuple))
    places = [found.index(d) for d in drawn]
    assert places == sorted(places)
    assert np.allclose(places, np.linspace(0, tile.size(), 400), atol=0.1 * tile.size())
