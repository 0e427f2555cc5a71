"""`move_behind`: change the order of the statements of one body."""

from __future__ import annotations

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.program import Program, replace_stmt, with_body
from tensorc_dsl.proof.sets.dependence import meeting
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, the_statement
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal("E0683", "`{statement}` cannot move behind `{other}`: {reason}")
def UNMOVED(*focus: str, statement: str, other: str, reason: str, repair: str) -> None: ...


@primitive(NO_LOOP, NO_BLOCK, UNMOVED)
def move_behind(program: Program, statement: LoopRef | BlockRef, other: LoopRef | BlockRef) -> Rewrite[None]:
    """The statement is directly after the other one, earlier or later than before.

    s; t; u  ->  s; u; t        move_behind(t, u)

    Both are loops or blocks of one body. None of the statements that it passes may access an element that it writes, nor
    write one that it accesses. So loops become neighbours, as `merge` requires.
    In Exo: `reorder_stmts`.  Cases: tests/primitives/move_behind.md
    """
    around, stmt = the_statement(program, statement)
    beside, last = the_statement(program, other)
    facts = {"statement": statement.name, "other": other.name}
    if stmt is last or (around[-1] if around else None) is not (beside[-1] if beside else None):
        reason = "they are one statement" if stmt is last else "they do not stand in the same body"
        repair = "name two statements of one body; `fission` and `merge` divide and join the loops around them"
        raise UNMOVED(program, statement.name, other.name, **facts, reason=reason, repair=repair)
    body = around[-1].body if around else program.body
    here, there = body.index(stmt), body.index(last)
    passed = body[here + 1 : there + 1] if here < there else body[there + 1 : here]
    if met := meeting(around, stmt, passed):
        reason = f"`{met.first}` and `{met.second}` touch the same elements of `{met.buffer}`"
        repair = f"leave `{met.first}` and `{met.second}` in their order"
        raise UNMOVED(program, met.first, met.second, **facts, reason=reason, repair=repair)
    rest = tuple(s for s in body if s is not stmt)
    at = rest.index(last) + 1
    new = (*rest[:at], stmt, *rest[at:])
    if not around:
        return Rewrite(replace(program, body=new), None)
    return Rewrite(replace_stmt(program, around[-1].var, (with_body(around[-1], new),)), None)
