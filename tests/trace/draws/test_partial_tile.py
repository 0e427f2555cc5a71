"""`sample_partial_tile`: the support is what brute force finds; every list can be drawn and reached; open loops have it."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.schedule.step import LoopRef
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.draws.tiles import PartialTile, sample_partial_tile, sizes
from tensorc_dsl.schedule.trace.factors import Limit
from tests.compute.texts import made, std

EXAMPLES = [PartialTile(2, 24, 12), PartialTile(2, 24, 12, (Limit((0, 1), 6, 16),))]


def rng(n: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(n))


def brute(count: int, most: int, innermost: int) -> set[tuple[int, ...]]:
    lists = itertools.product(sizes(most), repeat=count)
    return {t for t in lists if math.prod(t) <= most and (not t or t[-1] <= innermost)}


def test_sizes_are_powers_of_two_and_what_is_half_way() -> None:
    assert sizes(40) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    assert sizes(1) == (1,)


@given(st.integers(0, 3), st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
def test_it_has_exactly_the_lists_that_brute_force_finds(count: int, most: int, innermost: int, n: int) -> None:
    tile, legal = PartialTile(count, most, innermost), brute(count, most, innermost)
    assert tile.size() == len(legal)
    decision = tile.sample(rng(n))
    assert decision in legal and tile.contains(decision)
    assert set(tile.moves(decision)) <= legal - {decision}
    assert math.isclose(tile.log_prob(decision), -math.log(len(legal)))


def test_lists_are_drawn_uniformly_and_all_are_connected() -> None:
    tile, source = PartialTile(2, 12, 4), rng(7)
    legal = brute(2, 12, 4)
    counts = Counter(tile.sample(source) for _ in range(6000))
    assert set(counts) == legal
    expected = 6000 / len(legal)
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < len(legal) - 1 + 5 * math.sqrt(2 * len(legal))
    seen: set[Decision] = {(1, 1)}
    todo: list[Decision] = [(1, 1)]
    while todo:
        new = set(tile.moves(todo.pop())) - seen
        seen |= new
        todo += new
    assert seen == legal


@pytest.mark.parametrize("bad", [(5, 1), (1, 6), (4, 4), (1,), (1, 1, 1), (0, 1), (True, 1), "x", 4])
def test_what_breaks_the_rule_is_not_contained(bad: object) -> None:
    assert not PartialTile(2, 12, 4).contains(bad)  # type: ignore[arg-type]


def test_open_and_prime_extents_have_it() -> None:
    p = made(std("matmul"), None, M=OpenRange(1, 40), N=OpenRange(1, 1 << 40), K=61)
    assert sample_partial_tile(p, LoopRef("i"), 3, 16).distribution == PartialTile(2, 48, 16)
    assert sample_partial_tile(p, LoopRef("j"), 2).distribution == PartialTile(1, 4096, 4096)
    assert sample_partial_tile(p, LoopRef("k"), 2).distribution == PartialTile(1, 64, 64)
    assert sample_partial_tile(p, LoopRef("k"), 1).distribution.size() == 1


@pytest.mark.parametrize(("parts", "innermost"), [(0, None), (17, None), (2, 0)])
def test_arguments_that_make_no_sense_are_errors(parts: int, innermost: int | None) -> None:
    with pytest.raises(TschedError, match="E0503"):
        sample_partial_tile(made(std("matmul"), None, M=4, N=4, K=4), LoopRef("i"), parts, innermost)
