"""`cache_write`: let a block write a buffer of its own, which is copied out afterwards."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import ZERO
from tensorc_dsl.ir.program import Block, Buffer, Program, find_block, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.accesses import follow_writes
from tensorc_dsl.proof.sets.regions import Region
from tensorc_dsl.schedule.copies import (
    NO_SCOPE,
    NOT_WHOLE,
    Site,
    box_copy,
    conditions_of_elements,
    copy_name,
    insert,
    redirected,
    require_order,
    require_scope,
    spanning_site,
    with_buffer,
)
from tensorc_dsl.schedule.motion import fills, own_buffer, writers
from tensorc_dsl.schedule.nests import NO_BLOCK, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal(
    "E0364",
    "cannot give `{block}` a buffer of its own: it writes several buffers",
    help="use `cache_write` on blocks that write one buffer",
    at="block",
)
def SEVERAL(*focus: str, block: str) -> None: ...


@primitive(NO_BLOCK, NO_SCOPE, SEVERAL, NOT_WHOLE)
def cache_write(program: Program, block: BlockRef, scope: str = "local") -> Rewrite[BlockRef]:
    """`block` writes `<buffer>_<scope>`; `<buffer>_write`, just after the outermost loop around it, copies that out.

    for i, k: C[i] += e   ->   for i, k: C_s[i] += e
                               for ax0: C[ax0] = C_s[ax0]

    If several blocks write the buffer, as after `decompose_reduction`, all of them write the copy, and the blocks between
    them read it. The new block is the result; move it with `reverse_compute_at`.
    In TVM: `cache_write`; in Halide: `in` or a wrapper; in Exo: `stage_mem`.  Cases: tests/primitives/cache_write.md
    """
    writer = the_block(program, block)[1]
    require_scope(program, scope)
    target = the_target(program, writer)
    site = spanning_site(program, (), target.name)
    return copied_out(program, site, writer, target, tuple((ZERO, e) for e in target.shape), scope)


def the_target(program: Program, writer: Block) -> Buffer:
    """The buffer that a block writes; refused if there are several."""
    name = own_buffer(writer)
    if name is None:
        raise SEVERAL(program, writer.name, block=writer.name)
    return program.buffer(name)


def copied_out(
    program: Program, site: Site, writer: Block, target: Buffer, region: Region, scope: str
) -> Rewrite[BlockRef]:
    """The blocks of a site use a copy of the writer's buffer; a box of it is written back after the site."""
    used = used_names(program)
    cache = replace(target, name=copy_name(target, scope, used), scope=scope, annotations=())
    out = fresh(f"{target.name}_write", used)
    nest = box_copy(out, target.name, cache, region, site.loops, used)
    result = insert(redirected(program, site, target.name, cache.name), site, (), (nest,))
    result = with_buffer(result, cache)
    whole = not site.loops and any(fills(loops, b, target) for loops, b in writers(program, target.name))
    if not whole and not follow_writes(result, cache.name, out):
        made = find_block(result, out)[1]
        limited = conditions_of_elements(program, site, target.name, made)
        result = replace_stmt(result, out, (replace(made, where=(*made.where, *limited)),))
        if not limited or not follow_writes(result, cache.name, out):
            raise NOT_WHOLE(program, writer.name, block=writer.name, buffer=target.name)
    require_order(result, program, site)
    return Rewrite(result, BlockRef(out))
