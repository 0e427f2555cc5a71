"""`vectorize`: run the iterations of a loop in the lanes of vector instructions."""

from __future__ import annotations

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import LoopKind, Program
from tensorc_dsl.schedule.kinds import CLASH, RACE, at_once
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, require_no_kind, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0332",
    "`{loop}` has `{extent}` iterations; the number of lanes must be known",
    help="split `{loop}` with a number for its inner factor, and vectorize that",
    at="loop",
)
def OPEN_LANES(*focus: str, loop: str, extent: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, OPEN_LANES, CLASH, RACE)
def vectorize(program: Program, loop: LoopRef) -> Rewrite[LoopRef]:
    """The iterations of the loop run at once, each in a lane of a vector.

    for i in n: s  ->  vectorized for i in n: s

    No iteration depends on another one, not even by accumulating into the same element; `n` is a number.
    In Halide and TVM: `vectorize`.  Cases: tests/primitives/vectorize.md
    """
    around, target = the_loop(program, loop)
    require_no_kind(program, target, "vectorize")
    if constant(target.extent) is None:
        raise OPEN_LANES(program, target.var, loop=target.var, extent=format_expr(target.extent))
    return at_once(program, around, target, LoopKind.VECTORIZED)
