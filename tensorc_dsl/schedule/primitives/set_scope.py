"""`set_scope`: set the memory of an intermediate buffer."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import LoopKind, Program
from tensorc_dsl.proof.sets.accesses import home, is_private
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.schedule.copies import NO_SCOPE, require_scope
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import copy_step, is_param
from tensorc_dsl.schedule.nests import NO_BUFFER, replace_buffer, the_buffer
from tensorc_dsl.schedule.step import BufferRef, Rewrite, primitive, refusal


@refusal(
    "E0623",
    "`{buffer}` lives where the caller put it",
    help="give a scope to a copy of it: `{copy}` makes one",
    at="buffer",
)
def OF_CALLER(*focus: str, buffer: str, copy: str) -> None: ...
@refusal(
    "E0624",
    "an iteration of `{loop}` may read what an earlier one left in `{buffer}`, so it cannot have a copy of its own",
    help='keep it "global", or move what writes `{buffer}` below `{loop}` first',
    at="buffer",
)
def NOT_PRIVATE(*focus: str, loop: str, buffer: str) -> None: ...


@primitive(NO_BUFFER, OF_CALLER, NO_SCOPE, NOT_PRIVATE, RACE)
def set_scope(program: Program, buffer: BufferRef, scope: str) -> Rewrite[None]:
    """The buffer is in the memory `scope`; the result does not change.

    buffer B: f32[8, 6]   ->   buffer B: f32[8, 6] in "shared"

    A buffer that is not "global" is new in each iteration of the innermost loop around all its uses. So no iteration may
    read elements that another wrote. A buffer that becomes "global" must not be shared by iterations of a parallel loop.
    In TVM: `set_scope`; in Halide: `store_in`; in Exo: `set_memory`.  Cases: tests/primitives/set_scope.md
    """
    old = the_buffer(program, buffer)
    if is_param(program, old.name):
        raise OF_CALLER(program, buffer=old.name, copy=copy_step(program, old.name))
    require_scope(program, scope)
    result = replace_buffer(program, old.name, (replace(old, scope=scope),))
    around = home(result, replace(old, scope="local")) or ()
    if scope == "global":
        for x in around:
            if x.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED) and (found := carried(result, x.var)):
                repair = "keep it private to an iteration"
                raise RACE(program, old.name, x.var, loop=x.var, dependence=found, repair=repair)
    elif old.scope == "global" and around and not is_private(result, old.name, around[-1].var):
        raise NOT_PRIVATE(program, old.name, around[-1].var, buffer=old.name, loop=around[-1].var)
    return Rewrite(result, None)
