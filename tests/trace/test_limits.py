"""Factors within limits: the number that brute force finds, numbered one by one, and drawn uniformly."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.schedule.step import LoopRef, ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision, Interval
from tensorc_dsl.schedule.trace.draws.tiles import (
    PartialTile,
    PerfectTile,
    sample_partial_tile,
    sample_perfect_tile,
    sizes,
)
from tensorc_dsl.schedule.trace.factors import Limit
from tests.compute.texts import made, std

LEVELS = [(), (0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)]


def within(t: tuple[int, ...], limits: tuple[Limit, ...]) -> bool:
    return all(x.low <= math.prod(t[n] for n in x.levels) <= x.high for x in limits)


@st.composite
def some_limits(draw: st.DrawFn) -> tuple[Limit, ...]:
    some = draw(st.lists(st.sampled_from(LEVELS[1:]), min_size=1, max_size=3))
    return tuple(Limit(x, draw(st.integers(-1, 9)), draw(st.integers(0, 40))) for x in some)


@given(st.integers(1, 60), st.integers(1, 20), some_limits(), st.integers(0, 99))
def test_perfect_tiles_within_limits_are_those_of_brute_force(
    n: int, innermost: int, limits: tuple[Limit, ...], seed: int
) -> None:
    tile = PerfectTile(n, 3, innermost, limits)
    every = ((a, b, n // a // b) for a in range(1, n + 1) for b in range(1, n + 1) if n % (a * b) == 0)
    check(tile, {t for t in every if t[2] <= innermost and within(t, limits)}, seed)


@given(st.integers(1, 30), st.integers(1, 20), some_limits(), st.integers(0, 99))
def test_partial_tiles_within_limits_are_those_of_brute_force(
    most: int, innermost: int, limits: tuple[Limit, ...], seed: int
) -> None:
    tile = PartialTile(3, most, innermost, limits)
    every = (t for t in product(sizes(most), repeat=3) if math.prod(t) <= most and t[2] <= innermost)
    check(tile, {t for t in every if within(t, limits)}, seed)


def check(tile: PerfectTile | PartialTile, legal: set[tuple[int, ...]], seed: int) -> None:
    assert tile.size() == len(legal)
    if not legal:
        return
    decision = tile.sample(np.random.Generator(np.random.Philox(seed)))
    assert decision in legal and tile.contains(decision)
    seen: set[Decision] = {decision}
    todo: list[Decision] = [decision]
    while todo:
        new = set(tile.moves(todo.pop())) - seen
        seen |= new
        todo += new
    assert seen == legal


def test_they_are_drawn_evenly() -> None:
    tile = PerfectTile(64, 4, 16, (Limit((1, 3), 4, 16), Limit((2,), 2, 8)))
    rng = np.random.Generator(np.random.Philox(3))
    counts = Counter(tile.sample(rng) for _ in range(200 * tile.size()))
    assert len(counts) == tile.size()
    assert sum((c - 200) ** 2 / 200 for c in counts.values()) < tile.size() - 1 + 5 * math.sqrt(2 * tile.size())


def test_what_no_tile_meets_is_refused_and_what_makes_no_sense_is_an_error() -> None:
    program = made(std("matmul"), None, M=8, N=61, K=8)
    i, j = LoopRef("i"), LoopRef("j")
    found = sample_perfect_tile(program, i, 3, None, ((1,), (0, 2)), (Interval(2, 4), Interval(1, 2)))
    assert found.distribution == PerfectTile(8, 3, 8, (Limit((1,), 2, 4), Limit((0, 2), 1, 2)))
    assert "numbers 0 * 2 from 1 to 2" in found.distribution.describe()
    found = sample_partial_tile(program, j, 3, None, ((1, 2),), (Interval(4, 6),))
    assert found.distribution == PartialTile(2, 64, 64, (Limit((0, 1), 4, 6),))
    with pytest.raises(ScheduleRefusal, match="E0508"):
        sample_perfect_tile(program, i, 2, None, ((1,),), (Interval(3, 3),))
    with pytest.raises(ScheduleRefusal, match="E0508"):
        sample_partial_tile(program, j, 2, None, ((1,),), (Interval(65, 99),))
    for levels, ranges in ((((3,),), (Interval(1, 2),)), (((1, 1),), (Interval(1, 2),)), (((1,),), ()), (((),), ())):
        with pytest.raises(TschedError, match="E0503"):
            sample_perfect_tile(program, i, 3, None, levels, ranges)
    with pytest.raises(TschedError, match="E0503"):
        sample_partial_tile(program, j, 3, None, ((0,),), (Interval(1, 2),))
