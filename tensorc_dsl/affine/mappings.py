"""Enumerates the mappings of a block's iterators to the axes of an instruction, as AMOS does (Zheng et al., ISCA 2022).

An iterator can play an axis of its own kind if the block uses it exactly in those operands in which the instruction uses
the axis. Several iterators that can play one axis may play it together, counted as one index (such as the rows of
im2col), so each set of them is a mapping; iterators without a role stay loops around the instruction. Sizes do not matter
here, since incomplete tiles are padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from tensorc_dsl.affine.filling import filled
from tensorc_dsl.affine.instruction import stored_place, unify
from tensorc_dsl.ir.expr import Load, constant, free_vars
from tensorc_dsl.ir.program import Block, Intrinsic, TileAxis
from tensorc_dsl.ir.warp import is_tma, is_tma_store


@dataclass(frozen=True, slots=True)
class Roles:
    """For each axis with more than one value, in the instruction's order, its iterators, in the block's order."""

    axes: tuple[tuple[TileAxis, tuple[str, ...]], ...]

    def __str__(self) -> str:
        """`i=vn*vh*vw, j=vco, k=vci`."""
        return ", ".join(f"{axis.name}={'*'.join(iters)}" for axis, iters in self.axes)


def mappings(b: Block, intrinsic: Intrinsic) -> Iterator[Roles]:
    """All mappings of a block onto an instruction, each once; those with the fewest loops outside come first.

    A block with an `init` is treated as after `decompose_reduction`. An iterator of extent 1 plays an axis only if no other
    iterator can, since together with others it makes no difference.
    """
    seen: set[tuple[tuple[str, ...], ...]] = set()
    axes = [a for a in intrinsic.axes if a.extent != 1]
    for pairs in _operands(b, intrinsic):
        for chosen in product(*(_players(b, a, pairs) for a in axes)):
            if chosen not in seen:
                seen.add(chosen)
                yield Roles(tuple(zip(axes, chosen, strict=True)))


Pairs = Sequence[tuple[Load, Load]]
"""For each operand of an instruction: its access in the instruction, and the corresponding access in the block."""


def _operands(b: Block, intrinsic: Intrinsic) -> Iterator[Pairs]:
    """The ways in which the block's store has the form of the instruction's store."""
    if len(b.body) != 1:
        return
    place, stored = stored_place(b.body[0]), stored_place(intrinsic.store)
    copied = filled(b.body[0].value) if is_tma(intrinsic) and not is_tma_store(intrinsic) else None
    for found in unify(intrinsic.store.value, b.body[0].value if copied is None else copied.load):
        pairs = ((stored, place), *found)
        of = {wanted.buffer: own for wanted, own in pairs}
        one_each = all(of[wanted.buffer] == own for wanted, own in pairs)
        if one_each and all(own.buffer != place.buffer for name, own in of.items() if name != stored.buffer):
            yield pairs


def _players(b: Block, axis: TileAxis, pairs: Pairs) -> list[tuple[str, ...]]:
    """The sets of iterators that can play an axis, the largest first; none of the iterators occurs in a condition."""
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
