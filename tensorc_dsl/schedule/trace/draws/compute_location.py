"""`sample_compute_location`: a place for a block among the loops of its consumers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.motion import own_buffers, readers
from tensorc_dsl.schedule.nests import the_block
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.primitives.compute_at import INLINE, ROOT
from tensorc_dsl.schedule.queries.block import executed_work, own_work
from tensorc_dsl.schedule.step import BlockRef, LoopRef, ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision, Offer, Uniform, below, draw, literal, shortened

if TYPE_CHECKING:
    import numpy as np


@frozen
class ComputeLocation(Uniform):
    """One of `places`: "root", names of loops from the outermost inwards, "inline".

    `depths` is the number of the consumers' loops around each place; "inline" is below all of them.
    """

    places: tuple[str, ...]
    depths: tuple[int, ...]

    def size(self) -> int:
        return len(self.places)

    def sample(self, rng: np.random.Generator) -> Decision:
        return self.places[below(len(self.places), rng)]

    def contains(self, decision: Decision) -> bool:
        return isinstance(decision, str) and decision in self.places

    def moves(self, decision: Decision) -> list[Decision]:
        return [p for p in self.places if p != decision]

    def features(self, decision: Decision) -> tuple[float, ...]:
        """The depth, and whether the block is inlined."""
        assert isinstance(decision, str)
        return (float(self.depths[self.places.index(decision)]), float(decision == INLINE))

    def describe(self, limit: int = 12) -> str:
        shown = [literal(p) if p in (ROOT, INLINE) else p for p in self.places]
        return "one of " + shortened(shown, limit)

    def meaning(self) -> tuple[object, ...]:
        return ("location",)


@draw(LoopRef | str)
def sample_compute_location(
    program: Program,
    block: BlockRef,
    among: tuple[LoopRef, ...] | None = None,
    inlined: bool = True,
    most: int = 16,
) -> Offer:
    """A place to which `compute_at` may move the block now: a loop around all its consumers, "inline", or "root".

    Only places at which the step would be accepted are drawn, each equally likely: `let place ~
    sample_compute_location(b)`, then `compute_at(b, place)`. "root" leaves the block in its place. With `among`, only those
    loops are considered beside "root" and "inline"; without `inlined`, "inline" is not. A place is not drawn if the program
    would then do more than `most` times its work without anything computed twice: a sum of a row that is computed again for
    each element of the row is no candidate. A move goes to any other place.
    In TVM: `sample_compute_location`, which has none of these.
    """
    the_block(program, block)

    def value(decision: Decision) -> object:
        assert isinstance(decision, str)
        return decision if decision in (ROOT, INLINE) else LoopRef(decision)

    return Offer(_locations(program, block.name, among, inlined, most), value)


@lru_cache(maxsize=256)
def _locations(
    program: Program, block: str, among: tuple[LoopRef, ...] | None, inlined: bool, most: int
) -> ComputeLocation:
    limit = max(most * own_work(program), executed_work(program))
    found = the_block(program, BlockRef(block))[1]
    nests = [loops for buffer in sorted(own_buffers(found)) for loops, _ in readers(program, buffer, but=block)]
    around = nests[0] if nests else ()
    # Loops named "root" or "inline" are excluded, since they could not be told from the two words.
    names = [x.var for x in around if x.var not in (ROOT, INLINE)]
    asked = [(n, d) for d, n in enumerate(names, 1) if among is None or LoopRef(n) in among]
    legal = [(n, depth) for n, depth in asked if _applies(program, block, LoopRef(n), limit)]
    places = [(ROOT, 0), *legal]
    if inlined and nests and _applies(program, block, INLINE, limit):
        places.append((INLINE, len(around) + 1))
    return ComputeLocation(tuple(p for p, _ in places), tuple(d for _, d in places))


def _applies(program: Program, block: str, place: LoopRef | str, limit: int) -> bool:
    """Whether the block may move there, and the program then does no more work than `limit`."""
    try:
        return executed_work(apply(program, "compute_at", BlockRef(block), place).program) <= limit
    except ScheduleRefusal:
        return False
