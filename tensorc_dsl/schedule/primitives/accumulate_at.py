"""`accumulate_at`: let a block make sums in a buffer of its own in each iteration of a loop, added up at its end."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program, find_loop, fresh, replace_stmt, used_names
from tensorc_dsl.schedule.accumulation import (
    IN_BETWEEN,
    MIXED_LOOP,
    NO_PARTS,
    NOT_AT_ZERO,
    accumulation_loops,
    parts_to_combine,
    require_alone,
    require_begun_once,
    steps_of,
    without_first_step,
)
from tensorc_dsl.schedule.copies import NO_SCOPE, require_scope
from tensorc_dsl.schedule.motion import VECTOR, require_no_vector
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, NOT_SERIAL, require_serial, the_block, the_loop
from tensorc_dsl.schedule.primitives.decompose_reduction import NOT_AROUND
from tensorc_dsl.schedule.primitives.rfactor import Split, combined, partial_buffer, partial_results
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0697",
    "no sum of `{block}` goes on across the iterations of `{loop}`",
    help="use `write_at`, which copies out what an iteration has finished; or move a loop of the reduction outside: {loops}",
    at="loop",
)
def FINISHED(*focus: str, block: str, loop: str, loops: str) -> None: ...


@primitive(
    NO_BLOCK, NO_LOOP, NO_SCOPE, NOT_AROUND, NOT_SERIAL, NO_PARTS, MIXED_LOOP, NOT_AT_ZERO, IN_BETWEEN, FINISHED, VECTOR
)  # fmt: skip
def accumulate_at(program: Program, loop: LoopRef, block: BlockRef, scope: str = "local") -> Rewrite[BlockRef]:
    """`<block>_part` makes the sums of each iteration of `loop`; `block`, behind it there, adds them to earlier ones.

    for k0, i0:                                for k0, i0:
        for k1, i1: C[i0*4 + i1] += e     ->       for k1, i1: C_part[k0, i0*4 + i1] += e
                                                   for i1_1: C[i0*4 + i1_1] += C_part[k0, i0*4 + i1_1]

    So a sum that is cut by a loop outside of its tiles, `k0`, stays in registers within a tile, as in the five loops of a
    product (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008). Each piece begins from the
    neutral value; `block` keeps its own initial value. The operation must be associative and commutative; floats count
    as such. The loops stay around the new block, which is the result. A "local" buffer holds what one iteration makes.
    In Exo: `stage_mem` with `accum`; in TVM: `rfactor` and `merge`.  Cases: tests/primitives/accumulate_at.md
    """
    around, b = the_block(program, block)
    the_loop(program, loop)
    require_scope(program, scope)
    names = [x.var for x in around]
    if loop.name not in names:
        raise NOT_AROUND(program, loop.name, b.name, loop=loop.name, block=b.name, loops=", ".join(names) or "none")
    inside = names.index(loop.name) + 1
    parts = parts_to_combine(program, b)
    factors = tuple(x for x in around[:inside] if x.var in steps_of(b))
    if not factors:
        loops = ", ".join(v for v in names if v in steps_of(b)) or "none"
        raise FINISHED(program, loop.name, b.name, block=b.name, loop=loop.name, loops=loops)
    counting = accumulation_loops(program, around, b, LoopRef(factors[0].var))
    require_begun_once(program, around, b, counting)
    for x in factors:
        require_serial(program, x, "make partial results of")
    require_no_vector(program, around[:inside], loop.name)
    require_alone(program, b, factors[0])
    steps = [x.var for x in around[inside:] if x.var in counting]
    if (c := without_first_step(b, around, steps)) is not None:
        reason = f"may have pieces without a step: `{format_expr(c)}` leaves out the first one"
        repair = "cut the reduction into pieces that all have steps"
        raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)

    used = used_names(program)
    made = fresh(f"{b.name}_part", used)
    places = [place for part in parts for place in part.places]
    buffers = {name: made if name == b.name else fresh(f"{name}_part", used) for name, _ in places}
    split = Split(b, around, counting, factors, buffers, dict.fromkeys(buffers, 0))
    behind = combined(parts, split, [x for x in around[inside:] if x.var not in counting], split.where(steps), used)
    result = replace_stmt(program, b.name, (partial_results(parts, split, made, b.where),))
    whole = find_loop(result, loop.name)[1]
    result = replace_stmt(result, loop.name, (replace(whole, body=(*whole.body, behind)),))
    extents = tuple(x.extent for x in factors)
    added = [replace(partial_buffer(program.buffer(old), new, 0, extents), scope=scope) for old, new in buffers.items()]
    return Rewrite(replace(result, buffers=(*result.buffers, *added)), BlockRef(made))
