"""Partial results of reductions: which reductions can have them, the loops that count them, and their stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorc_dsl.ir.expr import Expr, constant, free_vars
from tensorc_dsl.ir.program import Block, For, IterKind, Program, Store, walk
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.proof.sets.coverage import begins_once, may_be_empty
from tensorc_dsl.proof.sets.reductions import Element, NotApart, Part, parts_of
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges
from tensorc_dsl.schedule.accumulation import reduction_loops
from tensorc_dsl.schedule.motion import own_buffers
from tensorc_dsl.schedule.places import the_loop
from tensorc_dsl.schedule.refs import LoopRef
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0650",
    "cannot make partial results of `{block}`: it {reason}",
    help="{repair}",
    at="block",
)
def NO_PARTS(*focus: str, block: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0651",
    "`{loop}` does not count the reduction of `{block}`",
    help="the loops that do are: {loops}",
    at="loop",
)
def NOT_COUNTING(*focus: str, loop: str, block: str, loops: str) -> None: ...
@refusal(
    "E0653",
    "`{other}`, inside the reduction loop `{loop}`, uses what `{block}` has not finished there: `{buffer}`",
    help="make partial results before moving `{other}` there",
    at="loop",
)
def IN_BETWEEN(*focus: str, other: str, loop: str, block: str, buffer: str) -> None: ...


def parts_to_combine(program: Program, b: Block) -> tuple[Part, ...]:
    def refuse(reason: str, repair: str) -> Exception:
        return NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)

    if not b.is_reduction:
        raise refuse("is no reduction", "take a block that reduces, with `sum`, `max` or a reducer of the file")
    try:
        parts = parts_of(b)
    except NotApart as e:
        raise refuse(str(e), e.repair) from None
    steps = {it.name for it in b.iters if it.kind is IterKind.REDUCE}
    for it in sorted(steps & {v for part in parts for _, at in part.places for i in at for v in free_vars(i)}):
        raise refuse(
            f"adds to other elements in other steps of `{it}`", "take a reduction whose steps share an element"
        )
    return parts


def counting_loops(
    program: Program, around: tuple[For, ...], b: Block, loop: LoopRef, *, single: bool = False
) -> tuple[str, ...]:
    """The loops that count the reduction, outermost first; each has an iteration, or the reduction begins without one.
    With `single`, the loop may be one of a single iteration that counts nothing: all steps are in its only part."""
    the_loop(program, loop)
    found = reduction_loops(program, b, around)
    if single:
        named = {v for e in (*b.where, *(it.binding for it in b.iters)) for v in free_vars(e)}
        found = {*found, *(x.var for x in around if x.var == loop.name not in named and constant(x.extent) == 1)}
    counting = tuple(x.var for x in around if x.var in found)
    if loop.name not in counting:
        text = ", ".join(counting) or "none"
        raise NOT_COUNTING(program, loop.name, b.name, loop=loop.name, block=b.name, loops=text)
    for x in around:
        low = bounds(x.extent, {})[0]
        if x.var in counting and (low is None or low < 1) and not may_be_empty(b):
            repair = (
                f"give the task sizes at which `{x.var}` runs, or split with `partial=true` in place of what made it"
            )
            reason = f"reduces nothing where `{x.var}` does not run"
            raise NO_PARTS(program, x.var, b.name, block=b.name, reason=reason, repair=repair)
    return counting


def require_begun_once(program: Program, around: tuple[For, ...], b: Block, counting: Sequence[str]) -> None:
    """Refuse if loops inside of the reduction run the block again for an element: its parts would begin again there."""
    path = around[next(n for n, x in enumerate(around) if x.var in counting) :]
    if not begins_once(path, b, counting, extent_ranges(around)):
        reason = f"runs again for the same element inside of `{path[0].var}`"
        repair = f"move `{path[0].var}` and the other loops of its reduction inside of those that repeat it"
        raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)


def require_alone(program: Program, b: Block, top: For) -> None:
    """Refuse if another block in the loops of the reduction accesses a buffer that is complete only after them, or writes
    the initial value of the reduction.
    """
    starts = touched(replace(b, body=b.init, init=()))
    for _, other in walk((top,)):
        if isinstance(other, Block) and other.name != b.name:
            clash = (touched(other) & own_buffers(b)) | (own_buffers(other) & starts)
            if clash:
                facts = {"other": other.name, "loop": top.var, "block": b.name, "buffer": min(clash)}
                raise IN_BETWEEN(program, top.var, other.name, b.name, **facts)


def stored(places: Sequence[Element], values: Sequence[Expr]) -> tuple[Store, ...]:
    return tuple(Store(name, at, v) for (name, at), v in zip(places, values, strict=True))
