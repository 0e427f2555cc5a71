"""Whether a step would be accepted: `b.can_inline`, `b.can_reverse_inline`, `b.can_reverse_compute_at(l)`, ….

A module that asks these queries in its `when` is never refused, so no draw of its space fails. The conditions of a step are
proved, and a few facts do not decide them, so a query tries the step.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Program
from tensorc_dsl.schedule.places import the_block, the_loop
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refs import BlockRef, LoopRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal


@by_identity(256)
def _answers(_program: Program) -> dict[tuple[object, ...], bool]:
    return {}


def _accepted(step: str, program: Program, subject: BlockRef | LoopRef, *rest: object) -> bool:
    known = _answers(program)
    if (found := known.get((step, subject, *rest))) is not None:
        return found
    if isinstance(subject, BlockRef):
        the_block(program, subject)
    else:
        the_loop(program, subject)
    try:
        apply(program, step, subject, *rest)
        answer = True
    except ScheduleRefusal:
        answer = False
    known[step, subject, *rest] = answer
    return answer


@query
def can_inline(program: Program, block: BlockRef) -> bool:
    """Whether `compute_inline` would be accepted: its consumers can compute its elements where they read them."""
    return _accepted("compute_inline", program, block)


@query
def can_reverse_inline(program: Program, block: BlockRef) -> bool:
    """Whether `reverse_compute_inline` would be accepted: its producer can compute and store its result."""
    return _accepted("reverse_compute_inline", program, block)


@query
def can_compute_at(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `compute_at` would move it below a loop around all its consumers."""
    return _accepted("compute_at", program, block, loop)


@query
def can_compute_once_at(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `compute_at` would move it below a loop around all its consumers, and then computes nothing twice."""
    return _is_once(program, block, loop)


@query
def can_reverse_compute_at(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `reverse_compute_at` would move it below a loop around its producer."""
    return _accepted("reverse_compute_at", program, block, loop)


@query
def can_write_at(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `write_at` would be accepted: an iteration of a loop around it writes all that a copy of its results would."""
    the_block(program, block)
    return _accepted("write_at", program, loop, block)


@query
def can_roll(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `rolling_buffer` would keep what the next iteration of a loop around it reads again."""
    return _accepted("rolling_buffer", program, block, loop)


@query
def can_fold_scan(program: Program, block: BlockRef, steps: int = 2) -> bool:
    """Whether `fold_scan` would keep that many steps of it only."""
    return _accepted("fold_scan", program, block, steps)


@query
def can_split_scan(program: Program, block: BlockRef, length: int, in_range: bool = False) -> bool:
    """Whether `split_scan` would scan chunks of that many steps by themselves."""
    return _accepted("split_scan", program, block, length, in_range)


@query
def can_online_sums(program: Program, block: BlockRef, length: int) -> bool:
    """Whether `online_sums` would keep sums relative to this maximum so far, in parts of that many steps."""
    return _accepted("online_sums", program, block, length)


@query
def can_pad_einsum(program: Program, block: BlockRef, padding: tuple[int, ...]) -> bool:
    """Whether its extents are multiples of these numbers, or `pad_einsum` would make them so."""
    return _accepted("pad_einsum", program, block, padding)


@query
def can_parallel(program: Program, loop: LoopRef) -> bool:
    """Whether `parallel` would be accepted at its place: within one iteration of the loops around it, none of its own
    iterations needs an element that another one stores.
    """
    return _accepted("parallel", program, loop)


@query
def can_tensorize(program: Program, loop: LoopRef, intrinsic: str) -> bool:
    """Whether `tensorize` would be accepted: the nest of a loop is proved to compute what an instruction does."""
    return _accepted("tensorize", program, loop, intrinsic)


@query
def can_vectorize(program: Program, loop: LoopRef) -> bool:
    """Whether `vectorize` would be accepted at its place."""
    return _accepted("vectorize", program, loop)


@query
def can_leave(program: Program, loop: LoopRef, other: LoopRef) -> bool:
    """Whether `reorder` could move it outside of another loop around it."""
    return _accepted("reorder", program, loop, other)


@lru_cache(maxsize=256)
def _is_once(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    the_loop(program, loop)
    before, _ = the_block(program, block)
    try:
        moved = apply(program, "compute_at", block, loop).program
    except ScheduleRefusal:
        return False
    return _iterations(the_block(moved, block)[0]) == _iterations(before)


def _iterations(around: tuple[For, ...]) -> tuple[int, list[str]]:
    """The number of iterations of loops: what is known of it, and its open factors."""
    known = prod(n for x in around if (n := constant(x.extent)) is not None)
    return known, sorted(format_expr(x.extent) for x in around if constant(x.extent) is None)


@query
def is_independent(program: Program, loop: LoopRef) -> bool:
    """Whether `reorder` could move it outside of all loops around it, and `parallel` would be accepted there: none of
    its iterations needs an element that another one stores, in any iteration of the others.
    """
    return _is_independent(program, loop)


@lru_cache(maxsize=256)
def _is_independent(program: Program, loop: LoopRef) -> bool:
    around, _ = the_loop(program, loop)
    try:
        moved = apply(program, "reorder", loop, *(LoopRef(x.var) for x in around)).program if around else program
        apply(moved, "parallel", loop)
    except ScheduleRefusal:
        return False
    return True


@query
def can_rfactor(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `rfactor` would make partial results for the iterations of this loop."""
    return _accepted("rfactor", program, block, loop)
