"""`skew`: let an inner loop start later with each iteration of an outer one."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Var, add, index, mul, sub
from tensorc_dsl.ir.program import Program, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, replace_variables, require_serial, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal("E0607", "`{inner}` is not inside `{outer}`", help="name the outer loop first")
def NOT_INSIDE(*focus: str, inner: str, outer: str) -> None: ...
@refusal(
    "E0608",
    "a skew of `{inner}` by 0 moves nothing",
    help="give how far `{inner}` moves for each step of `{outer}`",
)
def NO_SKEW(*focus: str, inner: str, outer: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, NOT_INSIDE, NO_SKEW)
def skew(program: Program, outer: LoopRef, inner: LoopRef, factor: int = 1) -> Rewrite[LoopRef]:
    """The inner loop starts at `factor` times the outer one; it runs the same iterations in the same order.

    for i in a: for j in b: s
      ->  for i in a: for j_skewed in b + f*(a - 1): s[j := j_skewed - f*i], where 0 <= j_skewed - f*i < b

    (With a negative factor it starts at `f*i + -f*(a - 1)`, so that no number is negative.) A dependence along a diagonal
    becomes one along an axis: after `reorder` all iterations of a wavefront can run at once.
    In the polyhedral literature: skewing; in Tiramisu: `skew`.  Cases: tests/primitives/skew.md
    """
    around_outer, one = the_loop(program, outer)
    around, other = the_loop(program, inner)
    if len(around) <= len(around_outer) or around[len(around_outer)] is not one:
        raise NOT_INSIDE(program, one.var, other.var, outer=one.var, inner=other.var)
    for loop in (one, other):
        require_serial(program, loop, "skew")
    if not factor:
        raise NO_SKEW(program, one.var, other.var, outer=one.var, inner=other.var)
    reach = mul(index(abs(factor)), sub(one.extent, ONE))
    start = add(mul(index(factor), Var(one.var)), ZERO if factor > 0 else reach)
    name = fresh(f"{other.var}_skewed", used_names(program))
    skewed = replace(other, var=name, extent=simplify(add(other.extent, reach), extent_ranges(around)))
    inside = (*around, skewed)
    position = simplify(sub(Var(name), start), extent_ranges(inside))
    guard = (Compare("<=", ZERO, position), Compare("<", position, other.extent))
    body = replace_variables(other.body, {other.var: position}, inside, guard)
    return Rewrite(replace_stmt(program, other.var, (replace(skewed, body=body),)), LoopRef(name))
