"""`fuse`: join the loops of a nest into one loop."""

from __future__ import annotations

import itertools

from tensorc_dsl.ir.expr import ZERO, Expr, Var, constant, floordiv, floormod, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Program, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify
from tensorc_dsl.schedule.nests import (
    NO_LOOP,
    NOT_SERIAL,
    REPEATED,
    refuse_repeated,
    replace_variables,
    require_serial,
    the_loop,
)
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal("E0314", "fuse needs a loop", help="name the loops from the outermost inwards")
def NO_LOOPS(*focus: str) -> None: ...
@refusal(
    "E0315",
    "`{inner}` is not all there is in `{outer}`",
    help="fuse loops that stand directly in one another, named from the outermost inwards{order}",
    at="inner",
)
def NOT_NESTED(*focus: str, inner: str, outer: str, order: str) -> None: ...
@refusal(
    "E0316",
    "the extent of `{inner}` is `{extent}`, not a number",
    help="only the outermost of fused loops may have an open extent: {repair}",
    at="inner",
)
def OPEN_EXTENT(*focus: str, inner: str, extent: str, repair: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, REPEATED, NO_LOOPS, NOT_NESTED, OPEN_EXTENT)
def fuse(program: Program, *loops: LoopRef) -> Rewrite[LoopRef]:
    """One loop runs the iterations of a perfect nest in the same order.

    for i in a: for j in n: s  ->  for i_j in a*n: s[i := i_j / n, j := i_j % n]

    A single loop stays as it is, so a module need not count its loops.
    In Halide and TVM: `fuse`; in Exo: `mult_loops`.  Cases: tests/primitives/fuse.md
    """
    if not loops:
        raise NO_LOOPS(program)
    found = [the_loop(program, x) for x in loops]
    refuse_repeated(program, loops)
    if len(loops) == 1:
        return Rewrite(program, loops[0])
    around, nest = found[0][0], [x[1] for x in found]
    for loop in nest:
        require_serial(program, loop, "fuse")
    for outer, inner in itertools.pairwise(nest):
        if outer.body != (inner,):
            order = _from_outermost([x for _, x in sorted(found, key=lambda x: len(x[0]))])
            raise NOT_NESTED(program, outer.var, inner.var, outer=outer.var, inner=inner.var, order=order)
        if constant(inner.extent) is None:
            raise _open_extent(program, outer, inner)
    name = fresh("_".join(x.var for x in nest), used_names(program))
    extent: Expr = nest[0].extent
    for loop in nest[1:]:
        extent = mul(extent, loop.extent)
    extent = simplify(extent, extent_ranges(around))
    values: dict[str, Expr] = {}
    rest: Expr = Var(name)
    for loop in reversed(nest[1:]):
        size = max(1, constant(loop.extent) or 0)  # for an empty loop the divisor must not be 0; the fused one is empty
        values[loop.var] = floormod(rest, index(size))
        rest = floordiv(rest, index(size))
    values[nest[0].var] = ZERO if constant(nest[0].extent) == 1 else rest
    annotations = tuple(sorted(dict(a for x in reversed(nest) for a in x.annotations).items()))
    fused = For(name, extent, (), annotations=annotations)
    body = replace_variables(nest[-1].body, values, (*around, fused))
    return Rewrite(
        replace_stmt(program, nest[0].var, (For(name, extent, body, annotations=annotations),)), LoopRef(name)
    )


def _from_outermost(nest: list[For]) -> str:
    """The call with the loops from the outermost inwards, if they stand directly in one another; else empty."""
    nested = all(outer.body == (inner,) for outer, inner in itertools.pairwise(nest))
    return f": `fuse({', '.join(x.var for x in nest)})`" if nested else ""


def _open_extent(program: Program, outer: For, inner: For) -> Exception:
    """The refusal of an inner loop of an open extent. Behind a loop with a number of iterations, the two can trade places."""
    extent = format_expr(inner.extent)
    if constant(outer.extent) is not None:
        order = f"{inner.var}, {outer.var}"
        repair = f"`reorder({order})`, then `fuse({order})`"
    else:
        repair = f"give `{extent}` one size in the task, or leave the loops as they are"
    return OPEN_EXTENT(program, inner.var, inner=inner.var, extent=extent, repair=repair)
