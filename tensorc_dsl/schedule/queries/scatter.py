"""Questions about sums over matches: where data choose the element that a term is added to, and who may add to it at once."""

from __future__ import annotations

from tensorc_dsl.ir.atomics import not_atomic
from tensorc_dsl.ir.expr import constant, free_vars
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import For, Program
from tensorc_dsl.proof.sets.data_selected import Chosen, NotChosen, chosen_iteration
from tensorc_dsl.schedule.places import the_block
from tensorc_dsl.schedule.queries.block import spatial_loops
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refs import BlockRef, LoopRef


def _chosen(program: Program, block: BlockRef) -> dict[str, Chosen]:
    """The spatial loops of which data choose one iteration for each term, if all other loops were around them."""
    around, b = the_block(program, block)
    found: dict[str, Chosen] = {}
    if not b.is_reduction:
        return found
    mine = {x.name for x in spatial_loops(program, block)}
    for x in around:
        if x.var in mine and constant(x.extent) != 1:
            others = tuple(o for o in around if o is not x)
            alone: For = replace(x, body=(replace(b, init=()),))
            try:
                found[x.var] = chosen_iteration(others, alone)
            except NotChosen:
                continue
    return found


@query
def scatter_loops(program: Program, block: BlockRef) -> tuple[LoopRef, ...]:
    """Its spatial loops of which data choose one iteration for each term, outermost first: `scatter` takes them inside of its
    reduction loops, after `decompose_reduction`.
    """
    found = _chosen(program, block)
    return tuple(x for x in spatial_loops(program, block) if x.name in found)


@query
def scatter_rows(program: Program, block: BlockRef) -> tuple[LoopRef, ...]:
    """Its spatial loops along which data choose the same place, as along the rows of a table, outermost first: they may stand
    inside of those that are scattered. None if no loop can be scattered.
    """
    found = _chosen(program, block)
    deciding = frozenset[str]().union(*(free_vars(e) for c in found.values() for e in (c.at, *c.path)))
    rows = (x for x in spatial_loops(program, block) if x.name not in found and x.name not in deciding)
    return tuple(rows) if found else ()


@query
def can_be_atomic(program: Program, block: BlockRef, any_order: bool = False) -> bool:
    """Whether threads may make its updates at once, behind `decompose_reduction`: `atomic` would be accepted."""
    _, b = the_block(program, block)
    return b.is_reduction and not_atomic(replace(b, init=()), "any order" if any_order else "exact") is None
