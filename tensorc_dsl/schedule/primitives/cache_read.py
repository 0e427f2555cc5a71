"""`cache_read`: let a block read a copy of a buffer."""

from __future__ import annotations

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, add, constant, index, sub
from tensorc_dsl.ir.program import Block, Buffer, Program, replace_stmt, used_names
from tensorc_dsl.proof.sets.regions import Region
from tensorc_dsl.proof.sets.simplify import iter_ranges, prove, simplify
from tensorc_dsl.schedule.copies import (
    NO_SCOPE,
    NOT_FILLED,
    Site,
    box_copy,
    copy_name,
    insert,
    region_to_copy,
    require_defined,
    require_order,
    require_scope,
    widest_site,
    with_buffer,
)
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import VECTOR, own_buffers, read_indices, writers
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_BUFFER, copy_nest, map_accesses, the_block, the_buffer
from tensorc_dsl.schedule.step import BlockRef, BufferRef, Rewrite, primitive, refusal


@refusal(
    "E0361",
    "`{block}` does not read `{buffer}`",
    help="it reads: {reads}",
    at="buffer",
)
def NOT_READ(*focus: str, block: str, buffer: str, reads: str) -> None: ...
@refusal(
    "E0362",
    "`{block}` writes `{buffer}` itself: a copy made before it would be out of date",
    help="use `cache_write` for what a block accumulates, or `cache_inplace` for what it finds and changes",
    at="buffer",
)
def OWN(*focus: str, block: str, buffer: str) -> None: ...


@primitive(NO_BLOCK, NO_BUFFER, NO_SCOPE, NOT_READ, OWN, NOT_FILLED, RACE, VECTOR)
def cache_read(program: Program, block: BlockRef, buffer: BufferRef, scope: str = "global") -> Rewrite[BlockRef]:
    """`block` reads a copy, `<buffer>_<scope>`, made by a block of that name just before the outermost loop around it.

    for i: C[i] = A[i + 1]   ->   for ax0: A_s[ax0] = A[ax0 + 1]
                                  for i: C[i] = A_s[i]

    The copy holds the box of the buffer that the block reads, which is often all of it. If another block below the same
    loops writes the buffer, the copy stands inside these loops. Other blocks still read the buffer itself.
    In TVM: `cache_read`; in Halide: `in`; in Exo: `stage_mem`.  Cases: tests/primitives/cache_read.md
    """
    reader = the_block(program, block)[1]
    source = the_buffer(program, buffer)
    require_scope(program, scope)
    if source.name in own_buffers(reader):
        raise OWN(program, reader.name, block=reader.name, buffer=source.name)
    require_read(program, reader, source)
    return copied_in(program, widest_site(program, reader.name, source.name), reader, source, scope)


def require_read(program: Program, reader: Block, source: Buffer) -> None:
    """Refuse a buffer that the block does not read."""
    if not read_indices(reader, source.name):
        reads = ", ".join(x.name for x in (*program.params, *program.buffers) if read_indices(reader, x.name))
        raise NOT_READ(program, reader.name, block=reader.name, buffer=source.name, reads=reads or "nothing")


def copied_in(program: Program, site: Site, reader: Block, source: Buffer, scope: str) -> Rewrite[BlockRef]:
    """The reader reads a copy that is made before a site in which no block writes the source."""
    region = region_to_copy(program, site.loops, source, (reader.name,))
    # Without loops around, the bounds of the box are numbers, and the copy has the size of the box.
    box = _within(region, source) if not site.loops else tuple((ZERO, n) for n in source.shape)
    used = used_names(program)
    name = copy_name(source, scope, used)
    ranges = iter_ranges(reader.iters)

    def moved(indices: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        return name, tuple(simplify(sub(i, low), ranges) for i, (low, _) in zip(indices, box, strict=True))

    if site.loops:
        nest = box_copy(name, name, source, region, site.loops, used)
    else:
        nest = copy_nest(name, name, source, box, used)
    result = insert(replace_stmt(program, reader.name, (map_accesses(reader, source.name, moved),)), site, (nest,))
    result = with_buffer(result, Buffer(name, source.dtype, tuple(extent for _, extent in box), scope))
    if writers(program, source.name):
        require_defined(result, program, source.name, name)
    require_order(result, program, site)
    return Rewrite(result, BlockRef(name))


def _within(region: Region, source: Buffer) -> Region:
    """The part of a box that lies in the buffer, outside of which no instance reads; at some open size this is all of it."""
    return tuple(_cut(lower, extent, size) for (lower, extent), size in zip(region, source.shape, strict=True))


def _cut(lower: Expr, extent: Expr, size: Expr) -> tuple[Expr, Expr]:
    first, n, most = constant(lower), constant(extent), constant(size)
    if first is None or n is None or most is None:
        inside = prove(Compare(">=", lower, ZERO), {}) and prove(Compare("<=", add(lower, extent), size), {})
        return (lower, extent) if inside else (ZERO, size)
    # An access that never runs may have a box outside of the buffer; the copy then keeps one element, if there is one.
    low, high = min(max(first, 0), max(most - 1, 0)), min(first + n, most)
    return index(low), index(max(high - low, min(most, 1)))
