"""`split_scan`: scan chunks that do not wait for each other, and combine each with what comes before it."""

from __future__ import annotations

from tensorc_dsl.affine.simplify import TRUE, extent_ranges, simplify
from tensorc_dsl.ir.dtypes import I64
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Select,
    Var,
    add,
    ceildiv,
    constant,
    floordiv,
    floormod,
    index,
    mul,
    sub,
)
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.numbers import limits
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Iter, IterKind, Program, fresh, used_names
from tensorc_dsl.ir.reductions import combine, identity
from tensorc_dsl.schedule.places import NO_BLOCK, NOT_SERIAL
from tensorc_dsl.schedule.primitive import primitive
from tensorc_dsl.schedule.refs import BlockRef
from tensorc_dsl.schedule.refusal import refusal
from tensorc_dsl.schedule.rewrite import Rewrite
from tensorc_dsl.schedule.running import NO_RUNNING, Nest, the_running


@refusal(
    "E0645",
    "the {extent} steps of `{block}` cannot be cut into chunks of {length}",
    help="{repair}",
    at="length",
)
def NO_CHUNKS(*focus: str, block: str, extent: str, length: int, repair: str) -> None: ...


@primitive(NO_BLOCK, NOT_SERIAL, NO_RUNNING, NO_CHUNKS)
def split_scan(program: Program, block: BlockRef, length: int, *, sums: bool = False) -> Rewrite[tuple[BlockRef, ...]]:
    """`<block>_chunk` scans each chunk of `length` steps for itself, `<block>_carry` what the chunks come to.

    for t: Y[t] = Y[t-1] + e[t]   ->   for c, s: Y_chunk[c, s] = Y_chunk[c, s-1] + e[c*length + s]
                                       for c: Y_carry[c] = Y_carry[c-1] + Y_chunk[c, length-1]
                                       for t: Y[t] = Y_carry[t/length - 1] + Y_chunk[t/length, t%length]

    The two blocks are the result. They are scans, which may be cut again; `block` computes each element for itself. Steps
    beyond the last one add the neutral value. With `sums=true` a third block, `<block>_sum`, reduces each chunk, and the
    carries are of its results: they do not wait for the chunks' scans, which can then be computed where they are used.

    The step combines the value before with one term, by `+`, `*`, `min`, `max`, `and` or `or`; floats count as associative.
    In Halide and TVM nothing does this; in CUDA's libraries: `DeviceScan` of CUB.  Cases: tests/primitives/split_scan.md
    """
    used = used_names(program)
    n = the_running(program, block, used)
    extent = n.steps.extent
    _require_chunks(program, n, extent, length)
    ranges = extent_ranges(n.around)
    size = index(length)
    full, chunks = simplify(floordiv(extent, size), ranges), simplify(ceildiv(extent, size), ranges)
    op, name, scope = n.scan.op, n.block.name, program.buffer(n.element.buffer).scope
    taken = {it.name for it in n.block.iters}
    v, c, s = (Var(x) for x in (n.scan.steps, fresh(f"{n.scan.steps}_0", taken), fresh(f"{n.scan.steps}_1", taken)))
    step = add(mul(c, size), s)

    chunk = n.stage(f"{name}_chunk", scope, chunks, size)
    carry = n.stage(f"{name}_carry", scope, full)
    own = (Iter(c.name, IterKind.SPATIAL, chunks, c), Iter(s.name, IterKind.SCAN, size, s))
    exists = simplify(Compare("<", step, extent), extent_ranges(For(it.name, it.extent, ()) for it in own))
    term = n.at(n.scan.term, step)
    term = term if exists == TRUE else Select(exists, term, identity(op, n.element.dtype))
    start = Select(Compare("<", c, ONE), n.at(n.scan.first, ZERO), n.at(n.scan.term, mul(c, size)))
    scanned = n.nest(chunk, own, n.scanned(chunk, s, (c, s), start, term))
    if sums:
        total = n.stage(f"{name}_sum", scope, full)
        reduced = (replace(own[0], extent=full), replace(own[1], kind=IterKind.REDUCE))
        added = Select(Compare("<", step, ONE), n.at(n.scan.first, ZERO), n.at(n.scan.term, step))
        value = combine(op, n.read(total, c), added)
        summed = n.nest(total, reduced, value, identity(op, n.element.dtype))
        carried = n.carried(carry, c, full, n.read(total, c))
        made, stmts = (chunk, carry, total), (summed, carried, scanned)
    else:
        carried = n.carried(carry, c, full, n.read(chunk, c, index(length - 1)))
        made, stmts = (chunk, carry), (scanned, carried)
    here = n.read(chunk, floordiv(v, size), floormod(v, size))
    before = n.read(carry, sub(floordiv(v, size), ONE))
    result = n.mapped(program, Select(Compare("<", v, size), here, combine(op, before, here)), stmts)
    return Rewrite(replace(result, buffers=(*result.buffers, *made)), tuple(BlockRef(x.name) for x in made))


def _require_chunks(program: Program, n: Nest, extent: Expr, length: int) -> None:
    most = constant(extent)
    if most is not None and most < 3:
        repair = "leave a scan of so few steps as it is"
    elif length < 2 or (most is not None and length >= most):
        repair = "choose a length from 2 on" if most is None else f"choose a length from 2 to {most - 1}"
    elif length > limits(I64)[1] // 2:
        repair = "choose a length whose steps can be counted in 64 bits"
    else:
        return
    name = n.block.name
    raise NO_CHUNKS(program, name, block=name, extent=format_expr(extent), length=length, repair=repair)
