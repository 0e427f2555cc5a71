"""`reorder_block_iters`: list the iterators of a block in another order."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import Program, replace_stmt
from tensorc_dsl.schedule.nests import NO_BLOCK, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal
from tensorc_dsl.syntax.format import quoted


@refusal(
    "E0613",
    "{order} is not an order of the iterators of `{block}`",
    help="name each of {iters} once, as a string",
)
def NOT_THESE(*focus: str, order: str, block: str, iters: str) -> None: ...


@primitive(NO_BLOCK, NOT_THESE)
def reorder_block_iters(program: Program, block: BlockRef, order: tuple[str, ...]) -> Rewrite[None]:
    """The block has its iterators in the given order, each with its binding; the order of execution does not change.

    block C { spatial vi … ; spatial vj … ; … }  ->  block C { spatial vj … ; spatial vi … ; … }

    Steps and queries that use iterators by position see the new order: `b.iters`, `b.kinds`, instructions.
    In TVM: `reorder_block_iter_var`.  Cases: tests/primitives/reorder_block_iters.md
    """
    b = the_block(program, block)[1]
    iters = {it.name: it for it in b.iters}
    if sorted(order) != sorted(iters):
        given, names = ", ".join(map(quoted, order)), ", ".join(f"`{n}`" for n in iters)
        raise NOT_THESE(program, b.name, order=f"[{given}]", block=b.name, iters=names or "none")
    new = replace(b, iters=tuple(iters[name] for name in order))
    return Rewrite(replace_stmt(program, b.name, (new,)), None)
