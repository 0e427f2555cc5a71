"""`loop_partition`: cut the range of a loop into loops that run one after another."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tensorc_dsl.ir.expr import floordiv, index, mul, sub
from tensorc_dsl.ir.program import Program, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, simplify
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, Part, cut_loop, require_serial, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0605",
    "`{loop}` is not cut at {points}: {why}",
    help="give rising iteration numbers, each the first of a part but the first, or `multiple=8`",
)
def BAD_POINTS(*focus: str, points: str, loop: str, why: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, BAD_POINTS)
def loop_partition(
    program: Program, loop: LoopRef, points: tuple[int, ...] = (), multiple: int = 0
) -> Rewrite[tuple[LoopRef, ...]]:
    """Sibling loops run the iterations up to the first point, from there to the next one, and so on.

    for i in e: s  ->  for i_0 in p: s[i := i_0];  for i_1 in e - p: s'[i := p + i_1]

    With `multiple` in place of points the first part has the most iterations that are a multiple of it, and the second one
    the rest; of an open size either may have none. Tiles of the first part are whole then.

    The first part has the original statements, the others copies: `C_1`, `C_2`, … of a block `C`, with copies of the buffers
    that are private to an iteration. So each part can be scheduled separately: the border of an image, or the last
    tile. A part in which a reduction begins initialises it, the others continue it.
    In TVM: `loop_partition`; in Exo: `cut_loop`.  Cases: tests/primitives/loop_partition.md
    """
    around, target = the_loop(program, loop)
    require_serial(program, target, "cut")
    least = bounds(target.extent, extent_ranges(around))[0] or 0
    cuts = [index(p) for p in points]
    why = ""
    if multiple and not points:
        cuts = [simplify(mul(floordiv(target.extent, index(multiple)), index(multiple)), {})]
        if multiple < 2:
            why = "a part has a multiple of 2 or more iterations"
        elif cuts[0] in (index(0), target.extent):
            why = "one part would have no iterations"
    elif multiple:
        why = "either points are given or a multiple"
    elif not points:
        why = "there are none"
    elif points[0] < 1 or any(a >= b for a, b in pairwise(points)):
        why = "they do not rise from 1 on"
    elif points[-1] >= least:
        why = f"it has {least} iterations" if index(least) == target.extent else f"it may have only {least} iterations"
    if why:
        text = f"[{', '.join(map(str, points))}]" if points or not multiple else f"multiple={multiple}"
        raise BAD_POINTS(program, target.var, points=text, loop=target.var, why=why)
    used = used_names(program)
    edges = [index(0), *cuts, target.extent]
    parts = [
        Part(fresh(f"{target.var}_{n}", used), begin, simplify(sub(end, begin), {}), f"_{n}" if n else None)
        for n, (begin, end) in enumerate(pairwise(edges))
    ]
    loops, buffers = cut_loop(program, around, target, parts, used)
    out = replace_stmt(replace(program, buffers=(*program.buffers, *buffers)), target.var, loops)
    return Rewrite(out, tuple(LoopRef(x.var) for x in loops))
