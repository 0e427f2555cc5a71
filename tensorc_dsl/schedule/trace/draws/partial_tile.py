"""`sample_partial_tile`: the inner factors of a split whose last tile may be incomplete."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges
from tensorc_dsl.schedule.nests import the_loop
from tensorc_dsl.schedule.refs import LoopRef
from tensorc_dsl.schedule.trace.declare import BAD_ARGUMENT, Interval, Offer, draw
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, below, is_plain_int
from tensorc_dsl.schedule.trace.draws.perfect_tile import MAX_PARTS, NO_TILES
from tensorc_dsl.schedule.trace.factors import Factors, Family, Limit, limits_of, tile_features

if TYPE_CHECKING:
    import numpy as np

UNLIMITED = 1 << 12
"""The largest tile of a loop without a limit, or with a larger one."""


def sizes(most: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, … up to `most`: the powers of two, and the numbers half-way between them."""
    powers = [1 << k for k in range(most.bit_length())]
    return tuple(sorted({n for p in powers for n in (p, p + p // 2) if n <= most}))


def _options(left: int, others: int) -> tuple[int, ...]:
    del others
    return sizes(left)


@lru_cache(maxsize=1 << 12)
def _count(parts: int, most: int) -> int:
    """The number of lists of `parts` sizes with a product of at most `most`."""
    return 1 if parts == 0 else sum(_count(parts - 1, most // n) for n in sizes(most))


@dataclass(frozen=True, slots=True)
class PartialTile(Distribution):
    """`count` factors, outermost first, with a product of at most `most`; the last one is at most `max_innermost`, and all
    `limits` hold. Uniform."""

    count: int
    most: int
    max_innermost: int
    limits: tuple[Limit, ...] = ()

    def _limited(self) -> Family:
        innermost = (Limit((self.count - 1,), 1, self.max_innermost),) if self.count else ()
        return Family(_options, self.count, self.most, (*innermost, *self.limits))

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

    def log_prob(self, decision: Decision) -> float:
        return -math.log(self.size()) if self.contains(decision) else -math.inf

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
