"""`read_at`: let a block read a copy of the part of a buffer that one iteration of a loop needs."""

from __future__ import annotations

from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.sets.accesses import written
from tensorc_dsl.schedule.copies import NO_SCOPE, NOT_FILLED, body_at, require_scope, site_of
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import VECTOR, own_buffers
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_BUFFER, NO_LOOP, stmt_name, the_block, the_buffer, the_loop
from tensorc_dsl.schedule.primitives.cache_read import NOT_READ, OWN, copied_in, require_read
from tensorc_dsl.schedule.primitives.decompose_reduction import NOT_AROUND
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0620",
    "`{buffer}` changes below `{loop}` between the copy and what `{block}` reads",
    help="choose a loop further inside, in whose iterations nothing writes `{buffer}`",
    at="loop",
)
def CHANGES(*focus: str, buffer: str, loop: str, block: str) -> None: ...


@primitive(NO_BLOCK, NO_LOOP, NO_BUFFER, NO_SCOPE, NOT_AROUND, NOT_READ, OWN, CHANGES, NOT_FILLED, RACE, VECTOR)
def read_at(
    program: Program, loop: LoopRef, block: BlockRef, buffer: BufferRef, scope: str = "local"
) -> Rewrite[BlockRef]:
    """`block` reads `<buffer>_<scope>`, which a block of that name fills in each iteration of `loop`, just before it.

    for t in 4:                               for t in 4:
        for i in 2: Y[t*2 + i] = X[t*2 + i]       for ax0 in 2: X_s[t*2 + ax0] = X[t*2 + ax0]
                                       ->         for i in 2: Y[t*2 + i] = X_s[t*2 + i]

    The copy holds the box that the block reads in the iteration; a condition guards it if the box leaves the buffer.
    In TVM: `read_at`; `cache_read` copies the whole box at once.  Cases: tests/primitives/read_at.md
    """
    around, reader = the_block(program, block)
    source = the_buffer(program, buffer)
    the_loop(program, loop)
    require_scope(program, scope)
    names = [x.var for x in around]
    if loop.name not in names:
        facts = {"block": reader.name, "loops": ", ".join(names) or "none"}
        raise NOT_AROUND(program, loop.name, reader.name, loop=loop.name, **facts)
    if source.name in own_buffers(reader):
        raise OWN(program, reader.name, block=reader.name, buffer=source.name)
    require_read(program, reader, source)
    site = site_of(program, reader.name, names.index(loop.name) + 1)
    here = next(s for s in body_at(program, site.loops) if stmt_name(s) == site.first)
    if source.name in written((here,)):
        raise CHANGES(program, loop.name, reader.name, buffer=source.name, loop=loop.name, block=reader.name)
    return copied_in(program, site, reader, source, scope)
