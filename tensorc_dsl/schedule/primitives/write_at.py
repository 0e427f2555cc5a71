"""`write_at`: let a block write a buffer of its own in each iteration of a loop, copied out at its end."""

from __future__ import annotations

from tensorc_dsl.ir.program import Program, find_block
from tensorc_dsl.proof.sets.accesses import follow_writes, touched
from tensorc_dsl.schedule.copies import NO_SCOPE, NOT_WHOLE, block_names, region_to_copy, require_scope, spanning_site
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import VECTOR, own_buffers
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, the_block, the_loop
from tensorc_dsl.schedule.primitives.cache_write import SEVERAL, copied_out, the_target
from tensorc_dsl.schedule.primitives.decompose_reduction import NOT_AROUND
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0621",
    "`{block}` reads elements of `{buffer}` that were not written in the same iteration of `{loop}`",
    at="loop",
)
def EARLIER(*focus: str, block: str, buffer: str, loop: str, repair: str) -> None: ...


@primitive(NO_BLOCK, NO_LOOP, NO_SCOPE, NOT_AROUND, SEVERAL, EARLIER, NOT_WHOLE, RACE, VECTOR)
def write_at(program: Program, loop: LoopRef, block: BlockRef, scope: str = "local") -> Rewrite[BlockRef]:
    """`block` writes `<buffer>_<scope>`; `<buffer>_write` copies out the elements that each iteration of `loop` wrote.

    for t in 4:                               for t in 4:
        for i in 2, k: C[t*2 + i] += e            for i in 2, k: C_s[t*2 + i] += e
                                       ->         for ax0 in 2: C[t*2 + ax0] = C_s[t*2 + ax0]

    All elements of the box that is copied out are proved to be written in that iteration.
    In TVM: `write_at`; `cache_write` copies out everything at the end.  Cases: tests/primitives/write_at.md
    """
    around, writer = the_block(program, block)
    the_loop(program, loop)
    require_scope(program, scope)
    names = [x.var for x in around]
    if loop.name not in names:
        facts = {"block": writer.name, "loops": ", ".join(names) or "none"}
        raise NOT_AROUND(program, loop.name, writer.name, loop=loop.name, **facts)
    target = the_target(program, writer)
    site = spanning_site(program, around[: names.index(loop.name) + 1], target.name)
    group = [name for name in block_names(program, site) if target.name in touched(find_block(program, name)[1])]
    writing = [name for name in group if target.name in own_buffers(find_block(program, name)[1])]
    region = region_to_copy(program, site.loops, target, writing, written=True)
    rewrite = copied_out(program, site, writer, target, region, scope)
    cache = rewrite.program.buffers[-1]
    for name in group:
        if not follow_writes(rewrite.program, cache.name, name):
            repair = "choose a loop whose iterations start and finish what they write"
            if find_block(program, name)[1].is_reduction:
                repair += f"; a sum that goes on across them is added up by `accumulate_at({loop.name}, {name})`"
            raise EARLIER(program, name, loop.name, block=name, buffer=target.name, loop=loop.name, repair=repair)
    return rewrite
