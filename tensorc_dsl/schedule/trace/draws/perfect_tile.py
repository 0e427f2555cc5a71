"""`sample_perfect_tile`: the factors of a split without a remainder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.nests import the_loop
from tensorc_dsl.schedule.refs import LoopRef
from tensorc_dsl.schedule.refusal import refusal
from tensorc_dsl.schedule.trace.declare import BAD_ARGUMENT, Interval, Offer, draw
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, below, shortened
from tensorc_dsl.schedule.trace.factors import (
    Factors,
    Family,
    Limit,
    divisors,
    is_tiling,
    limits_of,
    random_tiling,
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
@refusal(
    "E0508",
    "`{loop}` runs {extent} times: {legal}",
    help="{repair}",
    at="loop",
)
def NO_TILES(*focus: str, loop: str, extent: int | str, legal: str, repair: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PerfectTile(Distribution):
    """`parts` factors, outermost first, with product `extent`; the last one is at most `max_innermost`, and all `limits`
    hold. Uniform."""

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
            return random_tiling(self.extent, self.parts, rng)
        options = self._innermost()
        ticket = below(sum(n for _, n in options), rng)
        innermost = next(d for d, n in options if (ticket := ticket - n) < 0)
        return (*random_tiling(self.extent // innermost, self.parts - 1, rng), innermost)

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, tuple)
            and is_tiling(decision, self.extent, self.parts)
            and decision[-1] <= self.max_innermost
            and all(x.holds(decision) for x in self.limits)
        )

    def log_prob(self, decision: Decision) -> float:
        return -math.log(self.size()) if self.contains(decision) else -math.inf

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
