"""`persist`: let a fixed number of blocks of a GPU process the iterations of a loop in turn."""

from __future__ import annotations

from tensorc_dsl.ir.program import PERSISTENT, LoopKind, Program
from tensorc_dsl.schedule.nests import NO_LOOP, the_loop, with_annotations
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal("E0398", "`{loop}` is {kind}: only the iterations of a loop over blocks can be taken in turn", at="loop")
def NOT_A_GRID(*focus: str, loop: str, kind: str, repair: str) -> None: ...


@primitive(NO_LOOP, NOT_A_GRID)
def persist(program: Program, loop: LoopRef) -> Rewrite[LoopRef]:
    """A backend may start fewer blocks, each of which takes iterations of the loop in turn: one for each multiprocessor.

    bound("block.x") for i in e: s  ->  bound("block.x") for i in e @("persistent", true): s

    Binding the loop has proved that its iterations run in any order, so any number of blocks computes the same result.
    Known as persistent threads (Gupta et al., InPar 2012).  Cases: tests/primitives/persist.md
    """
    target = the_loop(program, loop)[1]
    if target.axis is None or target.axis.level != "block":
        kind = target.kind if target.axis is None else f'bound to "{target.axis}"'
        repair = "name a loop over blocks"
        if target.kind is LoopKind.SERIAL:
            repair = f'bind `{target.var}` to "block.x", "block.y" or "block.z" first'
        raise NOT_A_GRID(program, target.var, loop=target.var, kind=kind, repair=repair)
    return Rewrite(with_annotations(program, target, {PERSISTENT: True}), LoopRef(target.var))
