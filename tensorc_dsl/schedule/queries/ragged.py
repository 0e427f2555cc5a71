"""Questions about reductions of which data say where they begin or end: rows of a sparse matrix, sequences of any length."""

from __future__ import annotations

from tensorc_dsl.ir.expr import free_vars, loads
from tensorc_dsl.ir.program import Block, IterKind, Program
from tensorc_dsl.proof.sets.store_guards import needed, never_negative_zero
from tensorc_dsl.schedule.places import the_block
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refs import BlockRef


def ragged_iterators(program: Program, b: Block) -> frozenset[str]:
    """The spatial iterators for each value of which data say where the reduction begins or ends.

    Lowering gives a loop such bounds (decision 92) if it is inside of the loops of these iterators.
    """
    reduced = {it.name for it in b.iters if it.kind is IterKind.REDUCE}
    spatial = {it.name for it in b.iters if it.kind is IterKind.SPATIAL}
    out = frozenset[str]()
    if not reduced or not any(loads(s.value) for s in b.body):
        return out
    above_zero = never_negative_zero(program)
    for s in b.body:
        for c in needed(s, above_zero):
            read = frozenset[str]().union(*map(free_vars, loads(c)))
            if read and read.isdisjoint(reduced) and not free_vars(c).isdisjoint(reduced):
                out |= read & spatial
    return out


@query
def is_ragged(program: Program, block: BlockRef) -> bool:
    """Whether it is a reduction of which data say where it begins or ends, such as a product with a sparse matrix, row by
    row: `sum[p] (V[p] * X[J[p]] if R[i] <= i32(p) and i32(p) < R[i + 1] else 0.0)`.
    """
    return bool(ragged_iterators(program, the_block(program, block)[1]))
