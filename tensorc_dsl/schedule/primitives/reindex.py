"""`reindex`: let a block use a copy whose subscripts are the block's own iterators."""

from __future__ import annotations

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.reductions import is_whole_update
from tensorc_dsl.schedule.copies import (
    DIFFERENT,
    LATER,
    NOT_ALONE,
    NOT_FILLED,
    NOT_WHOLE,
    by_iterators,
    reindexed_read,
    reindexed_write,
    subscripts,
)
from tensorc_dsl.schedule.motion import own_buffers
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_BUFFER, the_block, the_buffer
from tensorc_dsl.schedule.primitives.cache_read import NOT_READ, require_read
from tensorc_dsl.schedule.primitives.cache_write import SEVERAL
from tensorc_dsl.schedule.step import BlockRef, BufferRef, Rewrite, primitive


@primitive(NO_BLOCK, NO_BUFFER, NOT_READ, SEVERAL, DIFFERENT, NOT_FILLED, LATER, NOT_ALONE, NOT_WHOLE)
def reindex(program: Program, block: BlockRef, buffer: BufferRef) -> Rewrite[BlockRef]:
    """The block accesses `<buffer>_reindex[v…]`, where `v…` are its iterators, in place of the buffer.

    for t, r: Y[t] += X[t*2 + r]   ->   for t, r: X_reindex[t, r] = X[t*2 + r]
                                        for t, r: Y[t] += X_reindex[t, r]

    A copy of an input is made before the outermost loop around the block, a copy of an output is written back
    after it; so a convolution becomes a matrix product. The result is the copying block.
    In TVM: `reindex`; the copy of a convolution's input is known as im2col.  Cases: tests/primitives/reindex.md
    """
    user = the_block(program, block)[1]
    old = the_buffer(program, buffer)
    if is_whole_update(user) and len(own_buffers(user)) > 1 and old.name in own_buffers(user):
        raise SEVERAL(program, user.name, block=user.name)  # the two buffers of an arg-reduction share one place
    change = reindexed_write if old.name in own_buffers(user) else reindexed_read
    if change is reindexed_read:
        require_read(program, user, old)
    indices = subscripts(program, user, old)
    return change(program, user, old, indices, by_iterators(user, indices), "global", "reindex")
