"""Decides which part of a scan can run by itself: all of its steps, for some of its columns.

The *columns* of a scan are its elements at one step. A part of them runs by itself if no step reads another column. All
steps run where one is needed, since each needs those before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.coverage import repeating_loop
from tensorc_dsl.affine.form import Context
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.affine.simplify import iter_ranges
from tensorc_dsl.ir.expr import ONE, ZERO, Expr
from tensorc_dsl.ir.program import Block, For, IterKind
from tensorc_dsl.schedule.motion import read_indices

Ranges = list[tuple[Expr, Expr]]
"""A range `(lower, extent)` for each iterator of a block."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Why a part of a scan cannot run by itself, and what to do."""

    reason: str
    repair: str


def is_scan(b: Block) -> bool:
    return any(it.kind is IterKind.SCAN for it in b.iters)


def columns_of(b: Block, box: Ranges, around: Sequence[For]) -> Ranges | Stays:
    """The ranges of the instances of a scan that compute those in the box: all steps of their columns.

    In the order of the iterators, each of these instances reads its own buffer only where an earlier one of them stored. Each
    of the loops `around` moves the box, so that its iterations do not run the same steps again.
    """
    found = [(ZERO, it.extent) if it.kind is IterKind.SCAN else part for it, part in zip(b.iters, box, strict=True)]
    whole = {it.name for it, part in zip(b.iters, found, strict=True) if part == (ZERO, it.extent)}
    if b.is_reduction or not all(_is_earlier(b, r, whole) for r in read_indices(b, b.body[0].buffer)):
        repair = f"leave `{b.name}` where it is, or choose a loop each iteration of which reads all of its columns"
        return Stays("it is a scan, whose steps read what other columns compute", repair)
    extents = [(lower, extent, it.extent) for it, (lower, extent) in zip(b.iters, found, strict=True)]
    if loop := repeating_loop(around, extents):
        repair = f"choose a loop outside of `{loop}`, each iteration of which reads other columns"
        return Stays(f"it is a scan, and each iteration of `{loop}` would run all of its steps", repair)
    return found


def _is_earlier(b: Block, indices: Sequence[Expr], whole: Collection[str]) -> bool:
    """Whether what a step reads at `indices` is stored earlier, by an instance with the same values of the iterators that are
    not `whole`.
    """
    context = Context(iter_ranges(b.iters))
    stored = [linear(i, context) for i in b.body[0].indices]
    places = {next(iter(s.terms)): d for d, s in enumerate(stored) if [*map(abs, s.terms.values())] == [1]}
    earlier = False
    for it in b.iters:
        if it.extent == ONE:
            continue
        if it.name not in places:
            return False
        d = places[it.name]
        back = stored[d].minus(linear(indices[d], context)).times(stored[d].terms[it.name])
        if it.name not in whole and (back.terms or back.constant):
            return False
        if not earlier and (back.terms or back.constant < 0):
            return False
        earlier = earlier or back.constant > 0
    return earlier
