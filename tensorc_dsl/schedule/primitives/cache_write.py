"""`cache_write`: let a block write a buffer of its own, copied out afterwards."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import ZERO, Expr
from tensorc_dsl.ir.program import Program, fresh, used_names
from tensorc_dsl.schedule.motion import fills, own_buffer, positions, readers, top_statement, writers
from tensorc_dsl.schedule.nests import copy_nest, map_accesses, replace_at, stmt_name
from tensorc_dsl.schedule.places import NO_BLOCK, the_block
from tensorc_dsl.schedule.primitive import BlockRef, Rewrite, primitive
from tensorc_dsl.schedule.refusal import Refusal

NOT_ALONE = Refusal(
    "E0364",
    "cannot give `{block}` a buffer of its own: {reason}",
    help="use `cache_write` before the step that made it so",
    at="block",
)
READ_TOO_EARLY = Refusal(
    "E0365",
    "`{reader}` reads `{buffer}` before the copy would be made, after `{top}`",
    help="use `cache_write` before moving `{reader}` below the loops of `{block}`",
    at="block",
)
NOT_WHOLE = Refusal(
    "E0366",
    "`{block}` may not write every element of `{buffer}`, so a copy of the whole would write more",
    help="use `cache_write` on a block that writes each element of its buffer, as `{buffer}[i, j] = …` does",
    at="block",
)


@primitive(NO_BLOCK, NOT_ALONE, READ_TOO_EARLY, NOT_WHOLE)
def cache_write(program: Program, block: BlockRef, scope: str = "local") -> Rewrite[BlockRef]:
    """`block` writes `<buffer>_<scope>`; `<buffer>_write`, just after the outermost loop around it, copies that out.

    for i, k: C[i] += e   ->   for i, k: C_s[i] += e
                               for ax0: C[ax0] = C_s[ax0]

    The new block is the result; all others read and write what they did before. Move it with `reverse_compute_at`.
    In TVM: `cache_write`; in Halide: `in` or a wrapper; in Exo: `stage_mem`.  Cases: tests/primitives/cache_write.md
    """
    around, writer = the_block(program, block)
    name = own_buffer(writer)
    if name is None:
        raise NOT_ALONE(program, writer.name, block=writer.name, reason="it writes several buffers")
    others = [b.name for _, b in writers(program, name) if b.name != writer.name]
    if others:
        raise NOT_ALONE(program, writer.name, others[0], block=writer.name, reason=f"`{others[0]}` writes `{name}` too")
    target = program.buffer(name)
    top = top_statement(around, writer)
    order = positions(program)
    for loops, reader in readers(program, name, but=writer.name):
        if order[stmt_name(top_statement(loops, reader))] <= order[stmt_name(top)]:
            facts = {"reader": reader.name, "buffer": name, "top": stmt_name(top), "block": writer.name}
            raise READ_TOO_EARLY(program, reader.name, stmt_name(top), **facts)
    if not fills(around, writer, target):
        raise NOT_WHOLE(program, writer.name, block=writer.name, buffer=name)

    used = used_names(program)
    cache = replace(target, name=fresh(f"{name}_{scope}", used), scope=scope)
    out = fresh(f"{name}_write", used)

    def moved(indices: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        return cache.name, indices

    result = replace_at(program, writer.name, (map_accesses(writer, name, moved),))
    here = next(s for s in result.body if stmt_name(s) == stmt_name(top))
    copy = copy_nest(out, name, cache, [(ZERO, e) for e in target.shape], used)
    result = replace_at(result, stmt_name(top), (here, copy))
    return Rewrite(replace(result, buffers=(*result.buffers, cache)), BlockRef(out))
