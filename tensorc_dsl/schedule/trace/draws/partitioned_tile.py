"""`sample_partitioned_tile`: a perfect tile whose inner factors have a product with a given divisor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.refs import LoopRef
from tensorc_dsl.schedule.trace.declare import BAD_ARGUMENT, Offer, draw
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, below
from tensorc_dsl.schedule.trace.draws.perfect_tile import NO_TILES, extent_of
from tensorc_dsl.schedule.trace.factors import (
    Factors,
    divisors,
    is_tiling,
    random_tiling,
    tile_features,
    tile_moves,
    tilings,
)

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class PartitionedTile(Distribution):
    """`parts` factors, outermost first, with product `extent`; `inner_multiple` divides the product of the factors from
    number `partition` on. Uniform."""

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
        outer = random_tiling(self.extent // product, self.partition, rng)
        return (*outer, *random_tiling(product, self.parts - self.partition, rng))

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, tuple)
            and is_tiling(decision, self.extent, self.parts)
            and math.prod(decision[self.partition :]) % self.inner_multiple == 0
        )

    def log_prob(self, decision: Decision) -> float:
        return -math.log(self.size()) if self.contains(decision) else -math.inf

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
