"""`cache_inplace`: let a block update a copy of a buffer, read in before and written back after."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import Program, fresh, used_names
from tensorc_dsl.schedule.copies import (
    NO_SCOPE,
    NOT_FILLED,
    block_names,
    box_copy,
    copy_name,
    insert,
    redirected,
    region_to_copy,
    require_defined,
    require_order,
    require_scope,
    site_of,
    widest_site,
    with_buffer,
)
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import VECTOR, own_buffers
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_BUFFER, NO_LOOP, the_block, the_buffer, the_loop
from tensorc_dsl.schedule.primitives.cache_read import NOT_READ, require_read
from tensorc_dsl.schedule.primitives.decompose_reduction import NOT_AROUND
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0625",
    "`{block}` does not write `{buffer}`",
    help="use `cache_read` for what a block only reads",
    at="buffer",
)
def NOT_WRITTEN(*focus: str, block: str, buffer: str) -> None: ...


@primitive(NO_BLOCK, NO_BUFFER, NO_LOOP, NO_SCOPE, NOT_READ, NOT_WRITTEN, NOT_FILLED, NOT_AROUND, RACE, VECTOR)
def cache_inplace(
    program: Program, block: BlockRef, buffer: BufferRef, scope: str = "local", at: LoopRef | None = None
) -> Rewrite[tuple[BlockRef, ...]]:
    """`block` reads and writes `<buffer>_<scope>`, which is read in before it and written back after it.

    for i, k: C[i] = C[i] + e   ->   for ax0: C_s[ax0] = C[ax0]
                                     for i, k: C_s[i] = C_s[i] + e
                                     for ax0: C[ax0] = C_s[ax0]

    The copies stand just outside the outermost loop around the block in which no other block writes the buffer, or in each
    iteration of the loop `at`, so that a sum goes on in registers from one piece of its terms to the next. Blocks that
    read the buffer there read the copy, too: what is read in is the box that all of them access, what is written back the one
    that `block` stores. The results are the two new blocks.
    In TVM: `cache_inplace`; in Exo: `stage_mem`.  Cases: tests/primitives/cache_inplace.md
    """
    around, b = the_block(program, block)
    old = the_buffer(program, buffer)
    require_scope(program, scope)
    require_read(program, b, old)
    if old.name not in own_buffers(b):
        raise NOT_WRITTEN(program, b.name, block=b.name, buffer=old.name)
    site = widest_site(program, b.name, old.name)
    if at is not None:
        the_loop(program, at)
        names = [x.var for x in around]
        if at.name not in names:
            raise NOT_AROUND(program, at.name, b.name, loop=at.name, block=b.name, loops=", ".join(names) or "none")
        site = site_of(program, b.name, max(len(site.loops), names.index(at.name) + 1))
    used = used_names(program)
    cache = replace(old, name=copy_name(old, scope, used), scope=scope, annotations=())
    out = fresh(f"{old.name}_write", used)
    used_there = region_to_copy(program, site.loops, old, block_names(program, site))
    written = region_to_copy(program, site.loops, old, (b.name,), written=True)
    into = box_copy(cache.name, cache.name, old, used_there, site.loops, used)
    back = box_copy(out, old.name, cache, written, site.loops, used)
    result = insert(redirected(program, site, old.name, cache.name), site, (into,), (back,))
    result = with_buffer(result, cache)
    require_defined(result, program, old.name, cache.name)
    require_order(result, program, site)
    return Rewrite(result, (BlockRef(cache.name), BlockRef(out)))
