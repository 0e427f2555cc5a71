"""`reorder`: permute the loops of a nest."""

from __future__ import annotations

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.program import AT_ONCE, Program, Stmt, replace_stmt
from tensorc_dsl.proof.sets.dependence import broken
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, REPEATED, not_serial, refuse_repeated, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0321",
    "neither of `{first}` and `{second}` is inside the other",
    help="reorder the loops around one block at a time",
    at="first",
)
def NOT_ONE_PATH(*focus: str, first: str, second: str) -> None: ...
@refusal(
    "E0322",
    "`{loop}`, between the loops to reorder, holds {count} statements",
    help="only loops with nothing between them can trade places: `merge` makes one loop of its inner loops, and `fission` "
    "gives each of its statements a loop",
    at="loop",
)
def NOT_PERFECT(*focus: str, loop: str, count: int) -> None: ...
@refusal(
    "E0323",
    "the order {order} would change the result: {dependence}",
    help="keep the order of `{loop}` and the loops inside it",
)
def BREAKS(*focus: str, order: str, dependence: object, loop: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, REPEATED, NOT_ONE_PATH, NOT_PERFECT, BREAKS)
def reorder(program: Program, *loops: LoopRef) -> Rewrite[None]:
    """The named loops trade places so that they stand in the given order; other loops keep their places.

    for i in a: for j in b: s  ->  for j in b: for i in a: s

    Every dependence keeps its direction; only updates of one reduction may be reordered among themselves.
    In Halide and TVM: `reorder`; in Exo: `reorder_loops`.  Cases: tests/primitives/reorder.md
    """
    found = [the_loop(program, x) for x in loops]
    refuse_repeated(program, loops)
    names = [x.name for x in loops]
    if len(loops) < 2:
        return Rewrite(program, None)
    around, inmost = max(found, key=lambda x: len(x[0]))
    path = [x.var for x in around] + [inmost.var]
    for _, loop in found:
        if loop.var not in path:
            raise NOT_ONE_PATH(program, loop.var, inmost.var, first=loop.var, second=inmost.var)
    top = min(path.index(name) for name in names)
    nest = [*around[top:], inmost]
    for loop in nest:
        if loop.kind in AT_ONCE:
            raise not_serial(program, loop, "reorder")
        if loop is not inmost and len(loop.body) > 1:
            raise NOT_PERFECT(program, loop.var, loop=loop.var, count=len(loop.body))
    following = iter(found)
    order = [next(following)[1] if loop.var in names else loop for loop in nest]
    if order == nest:
        return Rewrite(program, None)
    dependence = broken(program, [x.var for x in order])
    if dependence is not None:
        text = ", ".join(f"`{x.var}`" for x in order)
        focus = (*names, dependence.first, dependence.second)
        raise BREAKS(program, *dict.fromkeys(focus), order=text, dependence=dependence, loop=dependence.loop)
    stmts: tuple[Stmt, ...] = inmost.body
    for loop in reversed(order):
        stmts = (replace(loop, body=stmts),)
    return Rewrite(replace_stmt(program, nest[0].var, stmts), None)
