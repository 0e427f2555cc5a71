"""`sample_partitioned_tile`: the support is what brute force finds; every tiling can be drawn and reached."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.schedule.trace.draws.tiles import PartitionedTile

EXAMPLES = [PartitionedTile(48, 3, 1, 4)]


def rng(n: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(n))


def brute(extent: int, parts: int, partition: int, multiple: int) -> set[tuple[int, ...]]:
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return {
        t
        for t in itertools.product(divisors, repeat=parts)
        if math.prod(t) == extent and math.prod(t[partition:]) % multiple == 0
    }


@given(st.integers(1, 60), st.integers(1, 3), st.integers(0, 2), st.integers(1, 12), st.integers(0, 99))
def test_it_has_exactly_the_tilings_that_brute_force_finds(
    extent: int, parts: int, partition: int, multiple: int, n: int
) -> None:
    tile = PartitionedTile(extent, parts, min(partition, parts - 1), multiple)
    legal = brute(extent, parts, tile.partition, multiple)
    assert tile.size() == len(legal)
    if not legal:
        assert tile.describe().startswith("there are no")
        return
    decision = tile.sample(rng(n))
    assert decision in legal
    assert set(tile.moves(decision)) <= legal - {decision}
    assert math.isclose(tile.log_prob(decision), -math.log(len(legal)))


def test_tilings_are_drawn_uniformly() -> None:
    tile, source = PartitionedTile(24, 3, 1, 4), rng(7)
    counts = Counter(tile.sample(source) for _ in range(6000))
    expected = 6000 / tile.size()
    assert set(counts) == brute(24, 3, 1, 4)
    chi = sum((c - expected) ** 2 / expected for c in counts.values())
    assert chi < tile.size() - 1 + 5 * math.sqrt(2 * tile.size())


@pytest.mark.parametrize("bad", [(24, 1, 1), (1, 2, 12, 1), (2, 12), (0, 24, 1), "x", 24, True, (1.0, 24.0, 1.0)])
def test_what_breaks_the_rule_is_not_contained(bad: object) -> None:
    assert not PartitionedTile(24, 3, 1, 4).contains(bad)  # type: ignore[arg-type]
