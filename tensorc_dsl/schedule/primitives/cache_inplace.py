"""`cache_inplace`: let a block update a copy of a buffer, read in before and written back after."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import Program, fresh, used_names
from tensorc_dsl.schedule.copies import (
    NOT_FILLED,
    box_copy,
    insert,
    redirected,
    region_at,
    require_defined,
    require_order,
    widest_site,
    with_buffer,
)
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import VECTOR, own_buffers
from tensorc_dsl.schedule.places import NO_BLOCK, NO_BUFFER, the_block, the_buffer
from tensorc_dsl.schedule.primitive import primitive
from tensorc_dsl.schedule.primitives.cache_read import NOT_READ, require_read
from tensorc_dsl.schedule.refs import BlockRef, BufferRef
from tensorc_dsl.schedule.refusal import refusal
from tensorc_dsl.schedule.rewrite import Rewrite
from tensorc_dsl.schedule.scopes import NO_SCOPE, copy_name, require_scope


@refusal(
    "E0625",
    "`{block}` does not write `{buffer}`",
    help="use `cache_read` for what a block only reads",
    at="buffer",
)
def NOT_WRITTEN(*focus: str, block: str, buffer: str) -> None: ...


@primitive(NO_BLOCK, NO_BUFFER, NO_SCOPE, NOT_READ, NOT_WRITTEN, NOT_FILLED, RACE, VECTOR)
def cache_inplace(
    program: Program, block: BlockRef, buffer: BufferRef, scope: str = "local"
) -> Rewrite[tuple[BlockRef, ...]]:
    """`block` reads and writes `<buffer>_<scope>`, which is read in before it and written back after it.

    for i, k: C[i] = C[i] + e   ->   for ax0: C_s[ax0] = C[ax0]
                                     for i, k: C_s[i] = C_s[i] + e
                                     for ax0: C[ax0] = C_s[ax0]

    The copies stand just outside the outermost loop around the block in which no other block writes the buffer; they hold
    the box that the block accesses there. The results are the two new blocks.
    In TVM: `cache_inplace`; in Exo: `stage_mem`.  Cases: tests/primitives/cache_inplace.md
    """
    b = the_block(program, block)[1]
    old = the_buffer(program, buffer)
    require_scope(program, scope)
    require_read(program, b, old)
    if old.name not in own_buffers(b):
        raise NOT_WRITTEN(program, b.name, block=b.name, buffer=old.name)
    site = widest_site(program, b.name, old.name)
    used = used_names(program)
    cache = replace(old, name=copy_name(old, scope, used), scope=scope, annotations=())
    out = fresh(f"{old.name}_write", used)
    region = region_at(program, site.loops, old, (b.name,))
    nests = [
        box_copy(name, target.name, source, region, site.loops, used)
        for name, target, source in ((cache.name, cache, old), (out, old, cache))
    ]
    result = insert(redirected(program, site, old.name, cache.name), site, (nests[0],), (nests[1],))
    result = with_buffer(result, cache)
    require_defined(result, program, old.name, cache.name)
    require_order(result, program, site)
    return Rewrite(result, (BlockRef(cache.name), BlockRef(out)))
