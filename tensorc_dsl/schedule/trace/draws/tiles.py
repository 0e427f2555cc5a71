"""Tiles of a loop: `sample_perfect_tile`, the factors of a split without a remainder, `sample_partial_tile`, whose last tile
may be incomplete, and `sample_partitioned_tile`, with a divisor for the product of the inner factors."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges
from tensorc_dsl.schedule.nests import the_loop
from tensorc_dsl.schedule.step import LoopRef, refusal
from tensorc_dsl.schedule.trace.distribution import (
    BAD_ARGUMENT,
    Decision,
    Interval,
    Offer,
    Uniform,
    below,
    draw,
    is_plain_int,
    shortened,
)
from tensorc_dsl.schedule.trace.factors import (
    Factors,
    Family,
    Limit,
    divisors,
    is_tiling,
    limits_of,
    random_factors,
    tile_features,
    tile_moves,
    tilings,
)

if TYPE_CHECKING:
    import numpy as np


MAX_PARTS = 16


@refusal(
    "E0509",
    "the extent of `{loop}` is `{extent}`, not a number: it has no perfect tiles",
    help="split it by a fixed factor first: split({loop}, [_, 32], partial=true)",
    at="loop",
)
def OPEN_EXTENT(*focus: str, loop: str, extent: str) -> None: ...
@refusal("E0508", "`{loop}` runs {extent} times: {legal}", at="loop")
def NO_TILES(*focus: str, loop: str, extent: int | str, legal: str, repair: str) -> None: ...


@frozen
class PerfectTile(Uniform):
    """`parts` factors, outermost first, with product `extent`; the last one is at most `max_innermost`, and all `limits`
    hold."""

    extent: int
    parts: int
    max_innermost: int
    limits: tuple[Limit, ...] = ()

    def _limited(self) -> Family:
        innermost = Limit((self.parts - 1,), 1, self.max_innermost)
        return Family(_options, self.parts, self.extent, (innermost, *self.limits))

    def _innermost(self) -> list[tuple[int, int]]:
        """Each legal innermost factor, with the number of tilings of the other levels."""
        found = ((d, tilings(self.extent // d, self.parts - 1)) for d in divisors(self.extent, self.max_innermost))
        return [(d, n) for d, n in found if n]

    def size(self) -> int:
        if self.limits:
            return self._limited().size()
        if self.max_innermost >= self.extent:
            return tilings(self.extent, self.parts)
        return sum(n for _, n in self._innermost())

    def sample(self, rng: np.random.Generator) -> Decision:
        if self.limits:
            return self._limited().at(below(self.size(), rng))
        if self.max_innermost >= self.extent:
            return random_factors(self.extent, self.parts, rng)
        options = self._innermost()
        ticket = below(sum(n for _, n in options), rng)
        innermost = next(d for d, n in options if (ticket := ticket - n) < 0)
        return (*random_factors(self.extent // innermost, self.parts - 1, rng), innermost)

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, tuple)
            and is_tiling(decision, self.extent, self.parts)
            and decision[-1] <= self.max_innermost
            and all(x.holds(decision) for x in self.limits)
        )

    def moves(self, decision: Decision) -> list[Decision]:
        assert isinstance(decision, tuple)
        near = tile_moves(decision, self.contains)
        return list(dict.fromkeys([*near, *self._limited().beside(decision)])) if self.limits else near

    def features(self, decision: Decision) -> tuple[float, ...]:
        assert isinstance(decision, tuple)
        return tile_features(decision)

    def describe(self, limit: int = 12) -> str:
        if self.size() == 0:
            parts = f"{self.parts} part{'s' * (self.parts != 1)}"
            last = f"its last part at most {self.max_innermost}{_within(self.limits)}"
            return f"no tile of {parts} makes {self.extent} with {last}"
        last = shortened([str(d) for d, _ in self._innermost()], limit)
        return f"{self.parts} factors with product {self.extent}, the last one of {last}{_within(self.limits)}"

    def meaning(self) -> tuple[object, ...]:
        # Features of tiles have the same meaning for every extent.
        return ("tile", self.parts)


def _options(left: int, others: int) -> list[int]:
    return divisors(left, left) if others else [left]


def _within(limits: tuple[Limit, ...]) -> str:
    return "".join(f", {x.describe()}" for x in limits)


def extent_of(program: Program, loop: LoopRef, parts: int, name: str) -> int:
    """The number of iterations of the loop. Refused if it is 0 or open; TschedError if `parts` is out of its range."""
    if not 1 <= parts <= MAX_PARTS:
        wanted = f"a number from 1 to {MAX_PARTS}"
        raise TschedError(BAD_ARGUMENT(None, parameter="parts", draw=name, wanted=wanted, found=parts))
    extent = the_loop(program, loop)[1].extent
    count = constant(extent)
    if count is None:
        raise OPEN_EXTENT(program, loop.name, loop=loop.name, extent=format_expr(extent))
    if count < 1:
        raise NO_TILES(
            program,
            loop.name,
            loop=loop.name,
            extent=count,
            legal="there is nothing to tile",
            repair="leave it as it is",
        )
    return count


@draw(Factors)
def sample_perfect_tile(
    program: Program,
    loop: LoopRef,
    parts: int,
    max_innermost: int | None = None,
    levels: tuple[tuple[int, ...], ...] = (),
    within: tuple[Interval, ...] = (),
) -> Offer:
    """`parts` factors, outermost first, whose product is the extent of the loop; the last is at most `max_innermost`.

    Products of some factors can be limited: with `levels=[[2], [1, 3]], within=[32..1024, 1..64]` factor number 2, counted
    from 0, is from 32 to 1024, and number 1 times number 3 is at most 64. The limits may depend on earlier draws, such as
    the threads that are left. Every list within the limits is equally likely. A move shifts one prime factor from one level
    to another; with limits it may also go to the next list in order, so that all lists stay connected.
    In TVM: `sample_perfect_tile`, without limits.
    """
    extent = extent_of(program, loop, parts, "sample_perfect_tile")
    if max_innermost is not None and max_innermost < 1:
        wanted, name = "a number from 1", "sample_perfect_tile"
        raise TschedError(BAD_ARGUMENT(None, parameter="max_innermost", draw=name, wanted=wanted, found=max_innermost))
    limits = limits_of("sample_perfect_tile", range(parts), levels, within)
    tile = PerfectTile(extent, parts, extent if max_innermost is None else min(max_innermost, extent), limits)
    if tile.size() == 0:
        wider = "allow a larger `max_innermost`, or more parts" + (", or wider limits" if limits else "")
        raise NO_TILES(program, loop.name, loop=loop.name, extent=extent, legal=tile.describe(), repair=wider)
    return Offer(tile)


# `sample_partial_tile`: the inner factors of a split whose last tile may be incomplete.


UNLIMITED = 1 << 12
"""The largest tile of a loop without a limit, or with a larger one."""


def sizes(most: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, … up to `most`: the powers of two, and the numbers half-way between them."""
    powers = [1 << k for k in range(most.bit_length())]
    return tuple(sorted({n for p in powers for n in (p, p + p // 2) if n <= most}))


def _partial_options(left: int, others: int) -> tuple[int, ...]:
    del others
    return sizes(left)


@lru_cache(maxsize=1 << 12)
def _count(parts: int, most: int) -> int:
    """The number of lists of `parts` sizes with a product of at most `most`."""
    return 1 if parts == 0 else sum(_count(parts - 1, most // n) for n in sizes(most))


@frozen
class PartialTile(Uniform):
    """`count` factors, outermost first, with a product of at most `most`; the last one is at most `max_innermost`, and all
    `limits` hold."""

    count: int
    most: int
    max_innermost: int
    limits: tuple[Limit, ...] = ()

    def _limited(self) -> Family:
        innermost = (Limit((self.count - 1,), 1, self.max_innermost),) if self.count else ()
        return Family(_partial_options, self.count, self.most, (*innermost, *self.limits))

    def _innermost(self) -> tuple[int, ...]:
        return sizes(min(self.most, self.max_innermost))

    def size(self) -> int:
        if self.limits:
            return self._limited().size()
        return sum(_count(self.count - 1, self.most // n) for n in self._innermost()) if self.count else 1

    def sample(self, rng: np.random.Generator) -> Decision:
        if self.limits:
            return self._limited().at(below(self.size(), rng))
        out: list[int] = []
        rest, options = self.most, self._innermost()
        for others in reversed(range(self.count)):
            ways = [_count(others, rest // n) for n in options]
            ticket = below(sum(ways), rng)
            out.append(next(n for n, w in zip(options, ways, strict=True) if (ticket := ticket - w) < 0))
            rest //= out[-1]
            options = sizes(rest)
        return tuple(reversed(out))

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, tuple)
            and len(decision) == self.count
            and all(is_plain_int(n) and n in sizes(self.most) for n in decision)
            and math.prod(decision) <= self.most
            and (not decision or decision[-1] <= self.max_innermost)
            and all(x.holds(decision) for x in self.limits)
        )

    def moves(self, decision: Decision) -> list[Decision]:
        """Tilings with one factor a step larger or smaller, also with another one moved the other way. All are connected."""
        assert isinstance(decision, tuple)
        steps = sizes(2 * self.most)
        out: dict[Decision, None] = {}
        for k in range(self.count):
            for other in range(self.count):
                for way in (1, -1):
                    moved = list(decision)
                    places = {k: way} if other == k else {k: way, other: -way}
                    for at, d in places.items():
                        moved[at] = steps[max(0, steps.index(moved[at]) + d)]
                    if tuple(moved) != decision and self.contains(tuple(moved)):
                        out[tuple(moved)] = None
        if self.limits:
            out |= dict.fromkeys(self._limited().beside(decision))
        return list(out)

    def features(self, decision: Decision) -> tuple[float, ...]:
        assert isinstance(decision, tuple)
        return tile_features((1, *decision))

    def describe(self, limit: int = 12) -> str:
        del limit
        which = f"{self.count} factor{'s' * (self.count != 1)} of 1, 2, 3, 4, 6, 8, 12, …"
        last = f", the last one at most {self.max_innermost}" if self.max_innermost < self.most else ""
        limits = "".join(f", {x.describe(1)}" for x in self.limits)
        return f"{which} with a product of at most {self.most}{last}{limits}"

    def meaning(self) -> tuple[object, ...]:
        return ("tile", self.count + 1)


@draw(Factors)
def sample_partial_tile(
    program: Program,
    loop: LoopRef,
    parts: int,
    max_innermost: int | None = None,
    levels: tuple[tuple[int, ...], ...] = (),
    within: tuple[Interval, ...] = (),
) -> Offer:
    """The inner factors, outermost first, of a split into `parts` loops, for any extent: `let t ~ sample_partial_tile(l,
    parts=3)`, then `split(l, concat([_], t), partial=true)`.

    The factors are 1, 2, 3, 4, 6, 8, 12, … (powers of two and the numbers half-way between), and their product is no larger
    than a single tile that holds the whole loop needs, or 4096. Every such list is equally likely; the last factor is at
    most `max_innermost`. It is for extents that are open or have few divisors, for which `sample_perfect_tile` has few
    choices. `levels` and `within` are limits as for `sample_perfect_tile`, with the numbers of the loops: the first factor
    is number 1. A move takes one factor, or two in opposite directions, a step up or down, or goes to the next list within
    the limits.
    """
    for name, value, high in (("parts", parts, MAX_PARTS), ("max_innermost", max_innermost, None)):
        if value is not None and (value < 1 or (high is not None and value > high)):
            wanted = "a number from 1" + ("" if high is None else f" to {high}")
            draw_name = "sample_partial_tile"
            raise TschedError(BAD_ARGUMENT(None, parameter=name, draw=draw_name, wanted=wanted, found=value))
    around, found = the_loop(program, loop)
    high = bounds(found.extent, extent_ranges(around))[1]
    most = UNLIMITED if high is None or high > UNLIMITED else next(n for n in sizes(2 * max(1, high)) if n >= high)
    limits = limits_of("sample_partial_tile", range(1, parts), levels, within)
    tile = PartialTile(parts - 1, most, most if max_innermost is None else min(most, max_innermost), limits)
    if tile.size() == 0:
        legal, repair = f"there are no {tile.describe()}", "allow wider limits"
        extent = format_expr(found.extent)
        raise NO_TILES(program, loop.name, loop=loop.name, extent=extent, legal=legal, repair=repair)
    return Offer(tile)


# `sample_partitioned_tile`: a perfect tile whose inner factors have a product with a given divisor.


@frozen
class PartitionedTile(Uniform):
    """`parts` factors, outermost first, with product `extent`; `inner_multiple` divides the product of the factors from
    number `partition` on."""

    extent: int
    parts: int
    partition: int
    inner_multiple: int

    def _inner(self) -> list[tuple[int, int]]:
        """Each legal product of the inner factors, with the number of its tilings."""
        if self.extent % self.inner_multiple:
            return []
        rest = self.extent // self.inner_multiple
        inner = self.parts - self.partition
        found = (
            (d * self.inner_multiple, tilings(rest // d, self.partition) * tilings(d * self.inner_multiple, inner))
            for d in divisors(rest, rest)
        )
        return [(product, n) for product, n in found if n]

    def size(self) -> int:
        return sum(n for _, n in self._inner())

    def sample(self, rng: np.random.Generator) -> Decision:
        options = self._inner()
        ticket = below(sum(n for _, n in options), rng)
        product = next(p for p, n in options if (ticket := ticket - n) < 0)
        outer = random_factors(self.extent // product, self.partition, rng)
        return (*outer, *random_factors(product, self.parts - self.partition, rng))

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, tuple)
            and is_tiling(decision, self.extent, self.parts)
            and math.prod(decision[self.partition :]) % self.inner_multiple == 0
        )

    def moves(self, decision: Decision) -> list[Decision]:
        # All tilings are connected, since any prime may move to the last level.
        assert isinstance(decision, tuple)
        return tile_moves(decision, self.contains)

    def features(self, decision: Decision) -> tuple[float, ...]:
        assert isinstance(decision, tuple)
        return tile_features(decision)

    def describe(self, limit: int = 12) -> str:
        del limit
        inner = self.parts - self.partition
        which = "the last one" if inner == 1 else f"the product of the last {inner}"
        rule = f"{self.parts} factors with product {self.extent}, {which} a multiple of {self.inner_multiple}"
        return rule if self.size() else f"there are no {rule}"

    def meaning(self) -> tuple[object, ...]:
        return ("tile", self.parts)


@draw(Factors)
def sample_partitioned_tile(
    program: Program, loop: LoopRef, parts: int, partition: int = 0, inner_multiple: int = 1
) -> Offer:
    """`parts` factors, outermost first, whose product is the extent of the loop, such that `inner_multiple` divides the
    product of the inner ones: factor number `partition` (from 0) and all after it.

    Every such list is equally likely. A move shifts one prime factor from one level to another.
    In TVM: `sample_partitioned_tile`, with `partition_pos` and `innerpart_factor`.
    """
    extent = extent_of(program, loop, parts, "sample_partitioned_tile")
    for name, value, low, high in (("partition", partition, 0, parts - 1), ("inner_multiple", inner_multiple, 1, None)):
        if value < low or (high is not None and value > high):
            wanted = f"a number from {low}" + ("" if high is None else f" to {high}")
            draw_name = "sample_partitioned_tile"
            raise TschedError(BAD_ARGUMENT(None, parameter=name, draw=draw_name, wanted=wanted, found=value))
    tile = PartitionedTile(extent, parts, partition, inner_multiple)
    if tile.size() == 0:
        repair = "use a multiple that divides the extent"
        raise NO_TILES(program, loop.name, loop=loop.name, extent=extent, legal=tile.describe(), repair=repair)
    return Offer(tile)
