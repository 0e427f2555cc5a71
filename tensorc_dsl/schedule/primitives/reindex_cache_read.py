"""`reindex_cache_read`: let a block read a copy with a layout over its iterators."""

from __future__ import annotations

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.copies import (
    BAD_PLACES,
    DIFFERENT,
    LATER,
    NO_SCOPE,
    NOT_FILLED,
    copied_by_map,
    reindexed_read,
    require_scope,
    subscripts,
)
from tensorc_dsl.schedule.motion import own_buffers
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_BUFFER, the_block, the_buffer
from tensorc_dsl.schedule.primitives.cache_read import NOT_READ, OWN, require_read
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IndexMap, Rewrite, primitive


@primitive(NO_BLOCK, NO_BUFFER, NO_SCOPE, NOT_READ, OWN, DIFFERENT, BAD_PLACES, NOT_FILLED, LATER)
def reindex_cache_read(
    program: Program, block: BlockRef, buffer: BufferRef, index_map: IndexMap, scope: str = "global"
) -> Rewrite[BlockRef]:
    """The instance of `block` with iterators `v…` reads `<buffer>_<scope>` at `index_map(v…)`.

    for t, r: Y[t] += X[t*2 + r]   ->   for t, r: X_s[r, t] = X[t*2 + r]             (t, r) -> (r, t)
                                        for t, r: Y[t] += X_s[r, t]

    The map takes all iterators of the block and gives each element that is read a different place.
    In TVM: `reindex_cache_read`; the places of `reindex` are the iterators themselves.
    Cases: tests/primitives/reindex_cache_read.md
    """
    reader = the_block(program, block)[1]
    old = the_buffer(program, buffer)
    require_scope(program, scope)
    if old.name in own_buffers(reader):
        raise OWN(program, reader.name, block=reader.name, buffer=old.name)
    require_read(program, reader, old)
    indices = subscripts(program, reader, old)
    return reindexed_read(
        program, reader, old, indices, copied_by_map(program, reader, old, index_map, indices), scope, scope
    )
