"""`atomic`: let threads update one element at once."""

from __future__ import annotations

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.program import ATOMIC, Program, replace_stmt
from tensorc_dsl.ir.reductions import Order, not_atomic
from tensorc_dsl.schedule.nests import NO_BLOCK, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal(
    "E0665",
    "the updates of `{block}` cannot be atomic: it {reason}",
    help="{repair}",
    at="block",
)
def NOT_ATOMIC(*focus: str, block: str, reason: str, repair: str) -> None: ...


@primitive(NO_BLOCK, NOT_ATOMIC)
def atomic(program: Program, block: BlockRef, any_order: bool = False) -> Rewrite[BlockRef]:
    """Threads may update one element concurrently: each update reads, adds and writes without interruption.

    for i, v: H[v] += e   ->   for i, v: atomic H[v] += e

    So loops that count terms may be bound to blocks and threads. The order of the updates is not defined. They must be
    folds that are associative and commutative, by a reducer of the language or of the file, of one number of 32 or 64 bits,
    or `any` and `all`. Sums and products of floats are rounded differently in each order, so results differ from run to run:
    `any_order` allows that. No other block may access an element while threads update it: `bind` proves this. On a processor
    without such axes the updates run one after another.
    In CUDA C++: `atomicAdd`; in Halide: `atomic`.  Cases: tests/primitives/atomic.md
    """
    _, b = the_block(program, block)
    order: Order = "any order" if any_order else "exact"
    if (why := not_atomic(b, order)) is not None:
        raise NOT_ATOMIC(program, b.name, block=b.name, reason=why.reason, repair=why.repair)
    items = tuple(sorted({**dict(b.annotations), ATOMIC: order}.items()))
    return Rewrite(replace_stmt(program, b.name, (replace(b, annotations=items),)), block)
