"""Each step of each tile is in one range, and each part is combined once: by integer sets, and by counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, add, index
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.sets import mapping, points
from tensorc_dsl.schedule.primitives.stream_k import EqualRanges

G, P, N, T, C = map(Var, "gpntc")


def box(**sizes: int) -> list[Expr]:
    """The conditions of some variables from 0 up to their sizes."""
    return [c for v, n in sizes.items() for c in (Compare("<=", ZERO, Var(v)), Compare("<", Var(v), index(n)))]


def steps_of(r: EqualRanges) -> isl.Map:
    """The tile and its step that an iteration over ranges, their tiles and steps of these computes."""
    conditions = [*box(g=r.count, p=r.tiles_of_range, n=r.steps), *r.has_tile(G, P), *r.has_step(G, P, N)]
    return mapping(["g", "p", "n"], [add(r.first_tile(G), P), add(r.first_step(G, P), N)], conditions)


def parts_of(r: EqualRanges) -> isl.Map:
    """The part that an iteration over tiles and their ranges combines."""
    conditions = [*box(t=r.tiles, c=r.ranges_of_tile), r.has_range(T, C)]
    return mapping(["t", "c"], list(r.place(T, C)), conditions)


def is_exact(r: EqualRanges) -> bool:
    """Whether each step is computed once, and the parts that are computed are those that are combined, each once."""
    steps, parts = steps_of(r), parts_of(r)
    every = points(["t", "s"], [*box(t=r.tiles), Compare("<=", ZERO, Var("s")), Compare("<", Var("s"), index(r.steps))])
    made = points(["g", "p"], [*box(g=r.count, p=r.tiles_of_range), *r.has_tile(G, P)])
    once = steps.is_injective() and steps.range().is_equal(every)
    return once and parts.is_injective() and parts.range().is_equal(made)


LENGTHS = st.integers(1, 40)


@given(tiles=LENGTHS, steps=LENGTHS, length=st.integers(1, 200))
def test_each_step_is_computed_once_and_each_part_combined_once(tiles: int, steps: int, length: int) -> None:
    assert is_exact(EqualRanges(tiles, steps, min(length, tiles * steps)))


@given(tiles=LENGTHS, steps=LENGTHS, length=st.integers(1, 200))
def test_no_extent_is_larger_than_it_has_to_be_by_more_than_one(tiles: int, steps: int, length: int) -> None:
    r = EqualRanges(tiles, steps, min(length, tiles * steps))
    of_range, of_tile = dict[int, set[int]](), dict[int, set[int]]()
    for y in range(tiles * steps):
        of_range.setdefault(y // r.length, set()).add(y // steps)
        of_tile.setdefault(y // steps, set()).add(y // r.length)
    assert len(of_range) == r.count
    assert 0 <= r.tiles_of_range - max(map(len, of_range.values())) <= 1
    assert 0 <= r.ranges_of_tile - max(map(len, of_tile.values())) <= 1


class _Late(EqualRanges):
    def _end(self, g: Expr) -> Expr:
        return add(super()._end(g), index(1))


class _Early(EqualRanges):
    def _end(self, g: Expr) -> Expr:
        return add(super()._end(g), index(-1))


class _Fewer(EqualRanges):
    @property
    def ranges_of_tile(self) -> int:
        return super().ranges_of_tile - 1


class _Shorter(EqualRanges):
    @property
    def tiles_of_range(self) -> int:
        return super().tiles_of_range - 1


class _Twice(EqualRanges):
    def has_range(self, t: Expr, c: Expr) -> Expr:
        return Compare("<=", ZERO, c)


class _Another(EqualRanges):
    def place(self, t: Expr, c: Expr) -> tuple[Expr, Expr]:
        return super().place(t, ZERO)


FAULTS = (_Late, _Early, _Fewer, _Shorter, _Twice, _Another)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("sizes", [(5, 12, 15), (7, 10, 18), (3, 8, 5)])
def test_a_wrong_range_is_found(fault: type[EqualRanges], sizes: tuple[int, int, int]) -> None:
    """A range is off by one, a part or tile is left out, a part is combined twice or in the place of another."""
    assert is_exact(EqualRanges(*sizes))
    assert not is_exact(fault(*sizes))
