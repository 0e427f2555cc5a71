"""`add_unit_loop`: put a loop of one iteration around a loop or a block."""

from __future__ import annotations

from tensorc_dsl.ir.expr import ONE
from tensorc_dsl.ir.program import For, Program, fresh, replace_stmt, used_names
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, the_statement
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive


@primitive(NO_LOOP, NO_BLOCK)
def add_unit_loop(program: Program, target: LoopRef | BlockRef) -> Rewrite[LoopRef]:
    """A loop of one iteration contains the loop or the block, and nothing else.

    s  ->  for unit in 1: s

    This gives a block with too few loops a loop to bind to an axis, or a place to compute at.
    In TVM: `add_unit_loop`; in Exo: `add_loop`.  Cases: tests/primitives/add_unit_loop.md
    """
    stmt = the_statement(program, target)[1]
    unit = For(fresh("unit", used_names(program)), ONE, (stmt,))
    return Rewrite(replace_stmt(program, target.name, (unit,)), LoopRef(unit.var))
