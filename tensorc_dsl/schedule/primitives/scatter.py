"""`scatter`: run only the iteration of a loop that data choose."""

from __future__ import annotations

from tensorc_dsl.ir.program import SCATTER, Program
from tensorc_dsl.schedule.kinds import scatter_problem
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, require_no_kind, the_loop, with_annotations
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal("E0664", "data do not choose the iteration of `{loop}`: it {reason}", at="loop")
def NOT_CHOSEN(*focus: str, loop: str, reason: str, repair: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, NOT_CHOSEN)
def scatter(program: Program, loop: LoopRef) -> Rewrite[LoopRef]:
    """Only the iteration of the loop that the data select runs: each term is added to its element, without other comparisons.

    for i in n: for b in m: H[b] += (v if X[i] == b else 0)   ->   for i in n: let b = X[i]; if 0 <= b < m: H[b] += v

    All other iterations must add the neutral element. A term whose subscript is outside of the loop's range is dropped. The
    program keeps the loop, so all proofs assume that it writes every element: parallel iterations around it need parts of
    their own, by `rfactor` before, and bound ones those or atomic updates.
    In Halide: an update with a data-dependent subscript, `H(X(r)) += 1`.  Cases: tests/primitives/scatter.md
    """
    around, target = the_loop(program, loop)
    require_no_kind(program, target, "scatter")
    if (problem := scatter_problem(around, target)) is not None:
        raise NOT_CHOSEN(program, target.var, loop=target.var, reason=problem.reason, repair=problem.repair)
    return Rewrite(with_annotations(program, target, {SCATTER: True}), loop)
