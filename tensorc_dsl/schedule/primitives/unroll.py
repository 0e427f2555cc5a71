"""`unroll`: write out the iterations of a loop."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import LoopKind, Program, replace_stmt
from tensorc_dsl.schedule.kinds import CLASH, refuse_clash
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, require_no_kind, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0334",
    "`{loop}` has `{extent}` iterations; to write them out their number must be known",
    help="split `{loop}` with a number for its inner factor, and unroll that",
    at="loop",
)
def OPEN_COUNT(*focus: str, loop: str, extent: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, OPEN_COUNT, CLASH)
def unroll(program: Program, loop: LoopRef) -> Rewrite[LoopRef]:
    """The iterations of the loop run in the same order, without a loop around them.

    for i in n: s  ->  unrolled for i in n: s

    In Halide and TVM: `unroll`; in Exo: `unroll_loop`.  Cases: tests/primitives/unroll.md
    """
    around, target = the_loop(program, loop)
    require_no_kind(program, target, "unroll")
    if constant(target.extent) is None:
        raise OPEN_COUNT(program, target.var, loop=target.var, extent=format_expr(target.extent))
    refuse_clash(program, around, target, LoopKind.UNROLLED)
    return Rewrite(replace_stmt(program, target.var, (replace(target, kind=LoopKind.UNROLLED),)), LoopRef(target.var))
