"""Conditions under which a block may run its instances in another order, and earlier."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import For, IterKind, Program
from tensorc_dsl.proof.sets.coverage import apart
from tensorc_dsl.proof.sets.private import follow_writes
from tensorc_dsl.proof.sets.regions import undetermined
from tensorc_dsl.schedule.motion import Nest, own_buffers, own_values, readers, written_once
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0368",
    "`{block}` cannot move: {reason}",
    help="leave it where it is, or move it before the step that made it so",
    at="block",
)
def ORDER(*focus: str, block: str, reason: str) -> None: ...


def require_one_each(program: Program, nest: Nest, around: Sequence[For]) -> None:
    """Refuse a block of which two instances may store one element in one iteration of the loops around it and the place below
    `around`: what the element holds in the end depends on their order.
    """
    b = nest[1]
    known = [b.iters[n].name for n in own_values(nest, around)]
    over = [For(it.name, it.extent, ()) for it in b.iters]
    others = [it.name for it in b.iters if it.kind is IterKind.SPATIAL and it.name not in known]
    for s in b.body:
        unknown = undetermined(b, s.indices, known)
        if unknown and not apart([((over, replace(b, where=())), s.indices)], known, others):
            reason = f"instances with different `{unknown}` store the same element of `{s.buffer}`"
            raise ORDER(program, b.name, block=b.name, reason=reason)


def require_versions(program: Program, nest: Nest, shared: Sequence[str]) -> None:
    """Refuse a block that stores an element again in later iterations of the `shared` loops, around it and its new place, if
    another one reads there what an earlier iteration stored.
    """
    b = nest[1]
    for buffer in sorted(own_buffers(b)):
        if not shared or written_once(program, buffer, shared):
            continue
        for loops, other in readers(program, buffer, but=b.name):
            inside = set(shared) <= {x.var for x in loops}
            if inside and not follow_writes(program, buffer, other.name, len(shared)):
                reason = f"`{other.name}` may read what an earlier iteration of `{shared[-1]}` left in `{buffer}`"
                raise ORDER(program, b.name, other.name, block=b.name, reason=reason)
