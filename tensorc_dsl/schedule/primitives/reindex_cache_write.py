"""`reindex_cache_write`: let a block write a buffer of its own with a layout over its iterators."""

from __future__ import annotations

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.copies import (
    BAD_PLACES,
    DIFFERENT,
    NO_SCOPE,
    NOT_ALONE,
    NOT_WHOLE,
    copied_by_map,
    reindexed_write,
    require_scope,
    subscripts,
)
from tensorc_dsl.schedule.nests import NO_BLOCK, the_block
from tensorc_dsl.schedule.primitives.cache_write import SEVERAL, the_target
from tensorc_dsl.schedule.step import BlockRef, IndexMap, Rewrite, primitive


@primitive(NO_BLOCK, NO_SCOPE, SEVERAL, DIFFERENT, BAD_PLACES, NOT_ALONE, NOT_WHOLE)
def reindex_cache_write(
    program: Program, block: BlockRef, index_map: IndexMap, scope: str = "local"
) -> Rewrite[BlockRef]:
    """The instance of `block` with iterators `v…` writes `<buffer>_<scope>` at `index_map(v…)`; it is copied out after.

    for i, j, k: C[i, j] += e   ->   for i, j, k: C_s[j, i] += e                     (i, j, k) -> (j, i)
                                     for i, j: C[i, j] = C_s[j, i]

    The map takes all iterators of the block and gives each element that is written a different place.
    In TVM: `reindex_cache_write`.  Cases: tests/primitives/reindex_cache_write.md
    """
    writer = the_block(program, block)[1]
    require_scope(program, scope)
    old = the_target(program, writer)
    indices = subscripts(program, writer, old)
    return reindexed_write(
        program, writer, old, indices, copied_by_map(program, writer, old, index_map, indices), scope, scope
    )
