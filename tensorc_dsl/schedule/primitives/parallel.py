"""`parallel`: run the iterations of a loop on several threads."""

from __future__ import annotations

from tensorc_dsl.ir.program import LoopKind, Program
from tensorc_dsl.schedule.kinds import CLASH, RACE, at_once
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, require_no_kind, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive


@primitive(NO_LOOP, NOT_SERIAL, CLASH, RACE)
def parallel(program: Program, loop: LoopRef) -> Rewrite[LoopRef]:
    """The iterations of the loop may run at once, on different threads.

    for i in e: s  ->  parallel for i in e: s

    No iteration depends on another one, not even by accumulating into the same element.
    In Halide and TVM: `parallel`; in Exo: `parallelize_loop`.  Cases: tests/primitives/parallel.md
    """
    around, target = the_loop(program, loop)
    require_no_kind(program, target, "parallelize")
    return at_once(program, around, target, LoopKind.PARALLEL)
