"""`look_back`: let the blocks of a GPU pass the value of a scan on."""

from __future__ import annotations

from tensorc_dsl.ir.annotations import LOOK_BACK
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.sets.running import not_passed
from tensorc_dsl.schedule.nests import NO_BLOCK, the_block, with_annotations
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal("E0677", "blocks cannot pass on the value of `{block}`: it {reason}", at="block")
def NOT_PASSED(*focus: str, block: str, reason: str, repair: str) -> None: ...


@primitive(NO_BLOCK, NOT_PASSED)
def look_back(program: Program, block: BlockRef) -> Rewrite[BlockRef]:
    """The blocks of a GPU pass the value of a scan on, so the loop of its steps may be bound to blocks.

    for c: { S[c] = S[c-1] + T[c]; … S[c-1] … }   ->   for c: { look back: S[c] = S[c-1] + T[c]; … S[c-1] … }

    Later statements of that loop read the value before their own step and no other. A block of the GPU publishes the term
    of its step, looks back until it finds the value of a step, executes the steps in between and its own from there, and
    publishes that value: in the order of the scan, so each run gives the same floats. `bind` proves that
    iterations depend on each other in no other way. On a processor without blocks they run in order.
    In CUDA's libraries: decoupled look-back (Merrill and Garland, 2016), as in `DeviceScan` of CUB.
    Cases: tests/primitives/look_back.md
    """
    _, b = the_block(program, block)
    if (why := not_passed(program, b.name)) is not None:
        raise NOT_PASSED(program, b.name, block=b.name, reason=why.reason, repair=why.repair)
    return Rewrite(with_annotations(program, b, {LOOK_BACK: True}), block)
