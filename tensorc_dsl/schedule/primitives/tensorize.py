"""`tensorize`: execute a nest of loops by one instruction."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import INTRINSIC, For, LoopKind, Program, Stmt
from tensorc_dsl.proof.sets.instructions import Match, match_nest, misplaced
from tensorc_dsl.schedule.kinds import CLASH, refuse_clash
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, loops_below, require_serial, the_loop, with_annotations
from tensorc_dsl.schedule.stale import APART, FRAGMENT, NO_INTRINSIC, the_intrinsic
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal("E0681", "the nest of `{loop}` is not {intrinsic}: {why}")
def NO_MATCH(*focus: str, loop: str, intrinsic: str, why: str, repair: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, CLASH, NO_INTRINSIC, NO_MATCH, FRAGMENT, APART)
def tensorize(program: Program, loop: LoopRef, intrinsic: str) -> Rewrite[LoopRef]:
    """The loop and all statements below it are one instruction, which computes the same; no step splits them.

    for i in 16, k in 4: s  ->  tensorized for i in 16 @("intrinsic", "vnni_dot_16x4"): tensorized for k in 4: s

    The nest is proved to compute what the `intrinsic` declares: it has loops of its extents around one block, whose store has
    the same form and types, and whose operands are tiles with constant strides. An operand `in "mma.a"` is a
    buffer of that scope, and all instructions on it are proved to agree on the place of each element: by their layouts, an
    element that one writes is the element that another reads. A target with the required features runs the instruction; every
    other target runs the loops.
    In TVM: `tensorize`; in Exo: `replace`.  Cases: tests/primitives/tensorize.md
    """
    around, target = the_loop(program, loop)
    named = the_intrinsic(program, intrinsic, target.var)
    for x in (target, *loops_below(target)):
        require_serial(program, x, "tensorize")
    refuse_clash(program, around, target, LoopKind.TENSORIZED)
    match = match_nest(around, target, named)
    found = misplaced(program, named, match) if isinstance(match, Match) else match
    if found is not None:
        raise NO_MATCH(program, target.var, loop=target.var, intrinsic=named.name, why=found.why, repair=found.repair)
    whole = _tensorized((target,))[0]
    assert isinstance(whole, For)
    return Rewrite(with_annotations(program, whole, {INTRINSIC: named.name}), LoopRef(target.var))


def _tensorized(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(
        replace(s, kind=LoopKind.TENSORIZED, body=_tensorized(s.body)) if isinstance(s, For) else s for s in stmts
    )
