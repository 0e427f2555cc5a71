"""Whether a step would be accepted now: `b.can_inline`, `b.can_reverse_inline`, `b.can_reverse_compute_at(l)`, ….

A module whose steps are all accepted where its `when` holds makes no draw of its space fail. What a step demands is proved,
not described by a few facts, so the only true answer is to try it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.places import the_block, the_loop
from tensorc_dsl.schedule.primitive import BlockRef, LoopRef
from tensorc_dsl.schedule.primitives.compute_at import compute_at
from tensorc_dsl.schedule.primitives.compute_inline import compute_inline
from tensorc_dsl.schedule.primitives.pad_einsum import pad_einsum
from tensorc_dsl.schedule.primitives.parallel import parallel
from tensorc_dsl.schedule.primitives.reorder import reorder
from tensorc_dsl.schedule.primitives.reverse_compute_at import reverse_compute_at
from tensorc_dsl.schedule.primitives.reverse_compute_inline import reverse_compute_inline
from tensorc_dsl.schedule.primitives.vectorize import vectorize
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refusal import ScheduleRefusal


@lru_cache(maxsize=256)
def _accepted(step: Callable[..., object], program: Program, subject: BlockRef | LoopRef, *rest: object) -> bool:
    if isinstance(subject, BlockRef):
        the_block(program, subject)
    else:
        the_loop(program, subject)
    try:
        step(program, subject, *rest)
    except ScheduleRefusal:
        return False
    return True


@query
def can_inline(program: Program, block: BlockRef) -> bool:
    """Whether `compute_inline` would be accepted: its consumers can compute each element where they read it."""
    return _accepted(compute_inline, program, block)


@query
def can_reverse_inline(program: Program, block: BlockRef) -> bool:
    """Whether `reverse_compute_inline` would be accepted: its producer can compute and store what it makes."""
    return _accepted(reverse_compute_inline, program, block)


@query
def can_compute_at(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `compute_at` would put it below a loop around all its consumers."""
    return _accepted(compute_at, program, block, loop)


@query
def can_reverse_compute_at(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `reverse_compute_at` would put it below a loop around its producer."""
    return _accepted(reverse_compute_at, program, block, loop)


@query
def can_pad_einsum(program: Program, block: BlockRef, padding: tuple[int, ...]) -> bool:
    """Whether `pad_einsum` would make its extents multiples of these numbers, or they are."""
    return _accepted(pad_einsum, program, block, padding)


@query
def can_parallel(program: Program, loop: LoopRef) -> bool:
    """Whether `parallel` would be accepted where it stands: within one iteration of the loops around it, none of its own
    iterations needs what another one stores.
    """
    return _accepted(parallel, program, loop)


@query
def can_vectorize(program: Program, loop: LoopRef) -> bool:
    """Whether `vectorize` would be accepted where it stands."""
    return _accepted(vectorize, program, loop)


@query
def is_independent(program: Program, loop: LoopRef) -> bool:
    """Whether `reorder` could put it outside of all loops around it, and `parallel` would be accepted of it there: none of
    its iterations needs what another one stores, in any iteration of the others.
    """
    return _accepted(_outermost_parallel, program, loop)


def _outermost_parallel(program: Program, loop: LoopRef) -> object:
    around, _ = the_loop(program, loop)
    moved = reorder(program, loop, *(LoopRef(x.var) for x in around)).program if around else program
    return parallel(moved, loop)
