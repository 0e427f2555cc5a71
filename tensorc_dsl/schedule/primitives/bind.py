"""`bind`: distribute the iterations of a loop over an axis of a GPU."""

from __future__ import annotations

from tensorc_dsl.ir.annotations import axis_problem
from tensorc_dsl.ir.program import Axis, LoopKind, Program
from tensorc_dsl.schedule.kinds import CLASH, NOT_BLOCKS, RACE, at_once
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, require_no_kind, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal("E0609", 'there is no axis "{axis}"')
def NO_AXIS(*focus: str, axis: str, repair: str) -> None: ...
@refusal("E0610", '`{loop}` cannot be bound to "{axis}": {reason}')
def NOT_THERE(*focus: str, loop: str, axis: str, reason: str, repair: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, NO_AXIS, CLASH, RACE, NOT_BLOCKS, NOT_THERE)
def bind(program: Program, loop: LoopRef, axis: str) -> Rewrite[LoopRef]:
    """Each iteration of the loop runs on its own index of the axis: "block.x", "cluster.x", "warp", "lane", "thread.x", …

    for i in e: s  ->  bound("axis") for i in e: s

    No iteration depends on another one, not even by accumulating into the same element: a reduction along threads needs
    partial results first. A statement at the top of a program is a kernel, and in a kernel an axis has one size. On a
    processor without such axes the iterations run one after another.
    In TVM: `bind`; in Halide: `gpu_blocks`, `gpu_threads`, `gpu_lanes`.  Cases: tests/primitives/bind.md
    """
    around, target = the_loop(program, loop)
    require_no_kind(program, target, "bind")
    try:
        to = Axis(axis)
    except ValueError:
        other = axis.replace("Idx.", ".")  # CUDA's name: blockIdx.x
        axes = ", ".join(f'"{a}"' for a in Axis)
        known = f'write "{other}"' if other in list(Axis) else f"the axes are {axes}"
        raise NO_AXIS(program, target.var, axis=axis, repair=known) from None
    bound = at_once(program, around, target, LoopKind.BOUND, to)
    problem = axis_problem(bound.program)
    if problem is not None:
        # The argument may name the loop below: the conflict is between the two in either case.
        focus = dict.fromkeys(x for x in (target.var, problem.loop, problem.other) if x is not None)
        facts = {"loop": problem.loop, "axis": problem.axis, "reason": problem.reason, "repair": problem.repair}
        raise NOT_THERE(program, *focus, **facts)
    return bound
