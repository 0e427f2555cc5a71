"""`cache_read`: let a block read a copy of a buffer."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.affine.regions import inner_ranges, required_region
from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.ir.expr import Expr, constant, index, sub
from tensorc_dsl.ir.program import Buffer, For, Program, fresh, used_names
from tensorc_dsl.schedule.motion import (
    NO_BUFFER,
    fills,
    own_buffers,
    positions,
    read_indices,
    the_buffer,
    top_statement,
    writers,
)
from tensorc_dsl.schedule.nests import copy_nest, iter_ranges, map_accesses, replace_at, stmt_name
from tensorc_dsl.schedule.places import NO_BLOCK, the_block
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, Rewrite, primitive
from tensorc_dsl.schedule.refusal import Refusal

NOT_READ = Refusal(
    "E0361",
    "`{block}` does not read `{buffer}`",
    help="it reads: {reads}",
    at="buffer",
)
OWN = Refusal(
    "E0362",
    "`{block}` writes `{buffer}` itself: a copy made before it would be out of date",
    help="use `cache_write` for what a block accumulates",
    at="buffer",
)
NOT_FINISHED = Refusal(
    "E0363",
    "`{writer}` has not finished `{buffer}` where the copy would be made, before `{top}`",
    help="use `cache_read` before moving the two blocks below one loop",
    at="buffer",
)
NOT_FILLED = Refusal(
    "E0379",
    "`{buffer}` may have elements that nothing writes, and the copy would read them",
    help="use `cache_read` before the step that leaves them unwritten",
    at="buffer",
)


@primitive(NO_BLOCK, NO_BUFFER, NOT_READ, OWN, NOT_FINISHED, NOT_FILLED)
def cache_read(program: Program, block: BlockRef, buffer: BufferRef, scope: str = "global") -> Rewrite[BlockRef]:
    """`block` reads a copy, `<buffer>_<scope>`, made by a block of that name just before the outermost loop around it.

    for i: C[i] = A[i + 1]   ->   for ax0: A_s[ax0] = A[ax0 + 1]
                                  for i: C[i] = A_s[i]

    The copy holds the box of the buffer that the block reads: often all of it. Other blocks read what they read before.
    In TVM: `cache_read`; in Halide: `in`; in Exo: `stage_mem`.  Cases: tests/primitives/cache_read.md
    """
    around, reader = the_block(program, block)
    source = the_buffer(program, buffer)
    found = read_indices(reader, source.name)
    if source.name in own_buffers(reader):
        raise OWN(program, reader.name, block=reader.name, buffer=source.name)
    if not found:
        reads = ", ".join(x.name for x in (*program.params, *program.buffers) if read_indices(reader, x.name))
        raise NOT_READ(program, reader.name, block=reader.name, buffer=source.name, reads=reads or "nothing")
    top = top_statement(around, reader)
    order = positions(program)
    filling = writers(program, source.name)
    for loops, writer in filling:
        if order[top_name := stmt_name(top_statement(loops, writer))] >= order[stmt_name(top)]:
            raise NOT_FINISHED(
                program, writer.name, top_name, writer=writer.name, buffer=source.name, top=stmt_name(top)
            )
    if filling and not any(fills(loops, writer, source) for loops, writer in filling):
        raise NOT_FILLED(program, filling[0][1].name, buffer=source.name)

    ranges = iter_ranges(reader)
    inner = inner_ranges([For(it.name, it.extent, ()) for it in reader.iters], ())
    region = required_region([(indices, inner) for indices in found], {}, source.shape)
    box = [_within(lower, extent, size) for (lower, extent), size in zip(region, source.shape, strict=True)]
    used = used_names(program)
    name = fresh(f"{source.name}_{scope}", used)
    copy = Buffer(name, source.dtype, tuple(extent for _, extent in box), scope)

    def moved(indices: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        return name, tuple(simplify(sub(i, low), ranges) for i, (low, _) in zip(indices, box, strict=True))

    result = replace_at(program, reader.name, (map_accesses(reader, source.name, moved),))
    here = next(s for s in result.body if stmt_name(s) == stmt_name(top))
    result = replace_at(result, stmt_name(top), (copy_nest(name, name, source, box, used), here))
    return Rewrite(replace(result, buffers=(*result.buffers, copy)), BlockRef(name))


def _within(lower: Expr, extent: Expr, size: Expr) -> tuple[Expr, Expr]:
    """The part of a range that lies in the buffer: what is outside is read in no instance."""
    first, n, most = constant(lower), constant(extent), constant(size)
    if first is None or n is None or most is None:
        return lower, extent
    low, high = max(first, 0), min(first + n, most)
    return index(low), index(max(high - low, 1))
