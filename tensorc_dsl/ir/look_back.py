"""Scans whose value the blocks of a GPU pass on: a loop over blocks runs its iterations side by side, but for the steps of
such a scan, each of which waits for the one before."""

from __future__ import annotations

from tensorc_dsl.ir.expr import Var
from tensorc_dsl.ir.program import Block, For, IterKind, blocks_in

LOOK_BACK = "look_back"
"""The key of the annotation, true, of a scan whose steps may run on different blocks of a GPU, which pass its value on."""


def is_passed_on(b: Block) -> bool:
    """Whether the steps of a block may run on different blocks of a GPU."""
    return dict(b.annotations).get(LOOK_BACK) is True


def passed_along(loop: For) -> tuple[Block, ...]:
    """The scans inside of a loop whose steps its iterations are, and which these pass on if they are blocks; none if they
    are bound to something else."""
    if loop.axis is not None and loop.axis.level != "block":
        return ()
    return tuple(
        b
        for b in blocks_in(loop.body)
        if is_passed_on(b) and any(it.kind is IterKind.SCAN and it.binding == Var(loop.var) for it in b.iters)
    )
