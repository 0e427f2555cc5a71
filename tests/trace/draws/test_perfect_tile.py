"""`sample_perfect_tile`: the support is what brute force finds, and sampling is uniform over it."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.schedule.trace.draws.tiles import PerfectTile
from tensorc_dsl.schedule.trace.factors import Limit

EXAMPLES = [PerfectTile(36, 3, 12), PerfectTile(360, 3, 12, (Limit((1, 2), 6, 20), Limit((1,), 2, 9)))]


def rng(n: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(n))


def brute(extent: int, parts: int, bound: int) -> set[tuple[int, ...]]:
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return {
        t for t in itertools.product(divisors, repeat=parts) if math.prod(t) == extent and t[-1] <= bound
    }  # fmt: skip


@given(st.integers(1, 60), st.integers(1, 3), st.integers(1, 64), st.integers(0, 99))
def test_a_perfect_tile_has_exactly_the_tilings_that_brute_force_finds(extent: int, parts: int, bound: int, n: int):
    tile = PerfectTile(extent, parts, bound)
    legal = brute(extent, parts, bound)
    assert tile.size() == len(legal)
    if not legal:
        return
    decision = tile.sample(rng(n))
    assert decision in legal
    assert tile.contains(decision)
    assert set(tile.moves(decision)) <= legal - {decision}
    assert len(tile.features(decision)) == parts - 1


def test_perfect_tiles_are_drawn_uniformly():
    tile = PerfectTile(24, 3, 8)
    source = rng(7)
    counts = Counter(tile.sample(source) for _ in range(6000))
    expected = 6000 / tile.size()
    assert set(counts) == brute(24, 3, 8)
    # Chi-squared with size-1 degrees of freedom: mean size-1, standard deviation sqrt(2(size-1)).
    chi = sum((c - expected) ** 2 / expected for c in counts.values())
    assert chi < tile.size() - 1 + 5 * math.sqrt(2 * tile.size())


def test_moves_reach_every_tiling():
    tile = PerfectTile(36, 3, 12)
    start: tuple[int, ...] = (36, 1, 1)
    reached: set[tuple[int, ...]] = {start}
    frontier: list[tuple[int, ...]] = [start]
    while frontier:
        for m in tile.moves(frontier.pop()):
            assert isinstance(m, tuple)
            if m not in reached:
                reached.add(m)
                frontier.append(m)
    assert reached == brute(36, 3, 12)


@pytest.mark.parametrize("extent", [1, 1021, 2**61 - 1, 3**40])
def test_primes_one_and_huge_extents_are_tiled(extent: int):
    tile = PerfectTile(extent, 2, 64)
    assert tile.contains(tile.sample(rng()))


@pytest.mark.parametrize("bad", [(5, 7), (96, 1, 1), (1, 96), (0, 96), [4, 24], 96, "x", True])
def test_what_is_outside_the_bounds_is_not_contained(bad: object):
    assert not PerfectTile(96, 2, 4).contains(bad)  # type: ignore[arg-type]
