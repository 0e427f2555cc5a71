"""Decides which part of a scan can run by itself: all of its steps, for some of its columns.

The *columns* of a scan are its elements at one step. A part of them runs by itself if no step of it reads another column. All
steps run where one is needed, since each needs those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.expr import ONE, ZERO, Expr
from tensorc_dsl.ir.program import Block, For, IterKind
from tensorc_dsl.proof.sets.coverage import repeating_loop
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, linear
from tensorc_dsl.proof.sets.simplify import iter_ranges
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
    """The ranges of the instances of a scan that compute those in the box: all steps of their columns, and all values of an
    iterator at another value of which a step reads.

    In the order of the iterators, each of these instances reads its own buffer only where an earlier one of them stored. Each
    of the loops `around` moves the box, so that its iterations do not run the same steps again.
    """
    reads = [_back(b, r) for r in read_indices(b, b.body[0].buffer)]
    mixed = {name for r in reads if r is not None for name, by in r.items() if by.terms or by.constant}
    wide = mixed | {it.name for it in b.iters if it.kind is IterKind.SCAN}
    found = [(ZERO, it.extent) if it.name in wide else part for it, part in zip(b.iters, box, strict=True)]
    if b.is_reduction or not all(r is not None and _is_earlier(r) for r in reads):
        repair = f"leave `{b.name}` where it is"
        return Stays("it is a scan, and what its steps read is not known to be stored by earlier ones", repair)
    extents = [(lower, extent, it.extent) for it, (lower, extent) in zip(b.iters, found, strict=True)]
    if loop := repeating_loop(around, extents):
        repair = f"choose a loop outside of `{loop}`, each iteration of which reads other columns"
        return Stays(f"it is a scan, and each iteration of `{loop}` would run all of its steps", repair)
    return found


def _back(b: Block, indices: Sequence[Expr]) -> dict[str, Linear] | None:
    """How far before its own value of each iterator a step stored what it reads at `indices`; None if that is not known.
    Iterators with one value are left out.
    """
    context = Context(iter_ranges(b.iters))
    stored = [linear(i, context) for i in b.body[0].indices]
    places = {next(iter(s.terms)): d for d, s in enumerate(stored) if [*map(abs, s.terms.values())] == [1]}
    out: dict[str, Linear] = {}
    for it in b.iters:
        if it.extent == ONE:
            continue
        if it.name not in places:
            return None
        d = places[it.name]
        out[it.name] = stored[d].minus(linear(indices[d], context)).times(stored[d].terms[it.name])
    return out


def _is_earlier(back: Mapping[str, Linear]) -> bool:
    """Whether what is read is stored by an earlier instance, in the order of the iterators: the first of them that is not
    known to have the same value has a smaller one.
    """
    for by in back.values():
        if by.terms or by.constant < 0:
            return False
        if by.constant > 0:
            return True
    return False
