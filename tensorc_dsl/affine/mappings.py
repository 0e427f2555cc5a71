"""Which iterators of a block can play which axes of an instruction: all ways, as AMOS enumerates them.

An iterator can play an axis of its own kind when the block uses it exactly where the instruction uses the axis: in those
operands, and in no others. Several that can play one axis may play it together, counted as one index (as the rows of
im2col are), so each set of them is a way; those that play nothing stay loops around the instruction. Sizes do not matter
here: a tile that is not whole is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from tensorc_dsl.affine.instruction import stored_place, unify
from tensorc_dsl.ir.expr import Load, constant, free_vars
from tensorc_dsl.ir.program import Block, Intrinsic, TileAxis


@dataclass(frozen=True, slots=True)
class Roles:
    """For each axis of more than one value, in the instruction's order, the iterators that play it, in the block's."""

    axes: tuple[tuple[TileAxis, tuple[str, ...]], ...]

    def __str__(self) -> str:
        """`i=vn*vh*vw, j=vco, k=vci`."""
        return ", ".join(f"{axis.name}={'*'.join(iters)}" for axis, iters in self.axes)


def mappings(b: Block, intrinsic: Intrinsic) -> Iterator[Roles]:
    """All mappings of a block onto an instruction, each once; those that leave the fewest loops outside come first.

    A block that initialises what it accumulates into counts as what it does after `decompose_reduction`. An iterator of
    one value plays an axis only where no other can: with the others it would make no difference.
    """
    seen: set[tuple[tuple[str, ...], ...]] = set()
    axes = [a for a in intrinsic.axes if a.extent != 1]
    for pairs in _operands(b, intrinsic):
        for chosen in product(*(_players(b, a, pairs) for a in axes)):
            if chosen not in seen:
                seen.add(chosen)
                yield Roles(tuple(zip(axes, chosen, strict=True)))


Pairs = Sequence[tuple[Load, Load]]
"""Each operand of an instruction, as it subscripts it, with what the block has in its place."""


def _operands(b: Block, intrinsic: Intrinsic) -> Iterator[Pairs]:
    """The ways in which what the block stores has the form of what the instruction stores."""
    if len(b.body) != 1:
        return
    place, stored = stored_place(b.body[0]), stored_place(intrinsic.store)
    for found in unify(intrinsic.store.value, b.body[0].value):
        pairs = ((stored, place), *found)
        of = {wanted.buffer: own for wanted, own in pairs}
        one_each = all(of[wanted.buffer] == own for wanted, own in pairs)
        if one_each and all(own.buffer != place.buffer for name, own in of.items() if name != stored.buffer):
            yield pairs


def _players(b: Block, axis: TileAxis, pairs: Pairs) -> list[tuple[str, ...]]:
    """The sets of iterators that can play an axis, the largest first; none of them runs under a condition."""
    cut = {v for c in b.where for v in free_vars(c)}
    signature = [any(axis.name in free_vars(i) for i in wanted.indices) for wanted, _ in pairs]
    able = [
        it
        for it in b.iters
        if it.kind is axis.kind
        and not cut & free_vars(it.binding)
        and signature == [any(it.name in free_vars(i) for i in own.indices) for _, own in pairs]
    ]
    longer = [it.name for it in able if constant(it.extent) != 1]
    names = longer or [it.name for it in able[:1]]
    return [chosen for size in range(len(names), 0, -1) for chosen in combinations(names, size)]
