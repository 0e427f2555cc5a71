"""Other weights for some values of a draw: what is listed is drawn in proportion, and all else stays possible."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, Weighted, Weights
from tensorc_dsl.schedule.trace.draws.choices import Branch, Categorical, Integer, Permutation
from tensorc_dsl.schedule.trace.draws.compute_location import ComputeLocation
from tensorc_dsl.schedule.trace.draws.tiles import PartialTile, PartitionedTile, PerfectTile

KINDS: list[tuple[Distribution, tuple[Decision, Decision]]] = [
    (PerfectTile(16, 2, 16), ((4, 4), (16, 1))),
    (PartialTile(1, 8, 8), ((4,), (8,))),
    (PartitionedTile(16, 2, 0, 1), ((4, 4), (16, 1))),
    (Categorical((0, 16, 64), (1.0, 1.0, 2.0)), (16, 64)),
    (Categorical(("a", True, 1.5), (1.0, 1.0, 2.0)), ("a", True)),
    (Branch((30.0, 70.0), (True, False)), (True, False)),
    (Branch((1.0, 1.0, 1.0), ("stored", "inlined", "joined")), ("inlined", "joined")),
    (Branch((1.0, 1.0, 1.0)), (1, 2)),
    (Integer(1, 6), (2, 5)),
    (Permutation(3), ((2, 0, 1), (0, 1, 2))),
    (ComputeLocation(("root", "i", "j", "inline"), (0, 1, 2, 3)), ("j", "inline")),
]


def support(own: Distribution, start: Decision) -> list[Decision]:
    found = [start]
    for d in found:
        found += [m for m in own.moves(d) if m not in found]
    return found


@pytest.mark.parametrize(("own", "values"), KINDS, ids=lambda v: type(v).__name__)
def test_values_are_drawn_in_proportion_and_none_is_lost(own: Distribution, values: tuple[Decision, Decision]) -> None:
    weighed = Weights(((values[0], 60.0), (values[1], 20.0)), 20.0).over(own)
    assert isinstance(weighed, Weighted)
    every = support(own, values[0])
    assert len(every) == own.size() == weighed.size()
    chances = {d: math.exp(weighed.log_prob(d)) for d in every}
    assert sum(chances.values()) == pytest.approx(1.0)
    for d in every:
        listed = dict(zip(values, (0.6, 0.2), strict=True)).get(d, 0.0)
        assert chances[d] == pytest.approx(listed + 0.2 * math.exp(own.log_prob(d)))
        assert chances[d] > 0 and weighed.contains(d)
        assert weighed.features(d) == own.features(d) and weighed.moves(d) == own.moves(d)
    rng = np.random.default_rng(0)
    drawn = Counter(weighed.sample(rng) for _ in range(4000))
    for d in every:
        assert drawn[d] / 4000 == pytest.approx(chances[d], abs=0.03)
    assert (weighed.meaning(), weighed.describe()) == (own.meaning(), own.describe())


@pytest.mark.parametrize(
    "foreign", [((3, 5), "x"), ((4, 4, 1), 1.5), (16, True), ("root", (16, 2))], ids=str
)  # fmt: skip
def test_values_that_are_not_legal_here_have_no_weight(foreign: tuple[Any, Any]) -> None:
    own = PerfectTile(16, 2, 16)
    assert Weights(((foreign[0], 60.0), (foreign[1], 20.0)), 20.0).over(own) is own
    some = Weights(((foreign[0], 60.0), ((4, 4), 20.0)), 20.0).over(own)
    assert math.exp(some.log_prob((4, 4))) == pytest.approx(0.5 + 0.5 / 5)
    assert not some.contains(foreign[0]) and some.log_prob(foreign[0]) == -math.inf


def test_a_weight_of_0_is_none() -> None:
    own = Integer(1, 6)
    assert Weights(((2, 0.0),), 1.0).over(own) is own


def test_true_is_not_1() -> None:
    own = Categorical((1, True), (1.0, 1.0))
    weighed = Weights(((True, 9.0),), 1.0).over(own)
    assert math.exp(weighed.log_prob(True)) == pytest.approx(0.95)
    assert math.exp(weighed.log_prob(1)) == pytest.approx(0.05)


def test_probabilities_of_very_many_values_do_not_vanish() -> None:
    own = PerfectTile(2**3000, 16, 2**3000)
    tile = (*[1] * 15, 2**3000)
    weighed = Weights(((tile, 1.0),), 1.0).over(own)
    other = (2**3000, *[1] * 15)
    assert weighed.log_prob(other) == pytest.approx(own.log_prob(other) - math.log(2))
    assert weighed.log_prob(tile) == pytest.approx(math.log(0.5))
