"""`fission`: divide a loop behind one of its statements."""

from __future__ import annotations

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.expr import Var
from tensorc_dsl.ir.program import Program, blocks_in, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.dependence import runs_ahead
from tensorc_dsl.schedule.nests import (
    NO_BLOCK,
    NO_LOOP,
    NOT_SERIAL,
    replace_variables,
    require_serial,
    stmt_name,
    the_loop,
    the_statement,
)
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, ScheduleRefusal, primitive, refusal


@refusal("E0679", "`{loop}` cannot be divided behind `{after}`: {reason}")
def UNDIVIDED(*focus: str, loop: str, after: str, reason: object, repair: str) -> None: ...


@primitive(NO_LOOP, NO_BLOCK, NOT_SERIAL, UNDIVIDED)
def fission(program: Program, loop: LoopRef, after: LoopRef | BlockRef) -> Rewrite[tuple[LoopRef, ...]]:
    """The statements of the loop up to `after` run in all iterations before the later ones, which get a loop of their own.

    for i in e: (s; t)  ->  for i in e: s;  for i_1 in e: t[i := i_1]

    `after` is a loop or a block at any depth below the loop: the loops in between are split with it. The results are the two
    loops. An iteration of the second loop may not access an element that a later one of the first writes, nor write one
    that such a one accesses. A buffer that both use then has the elements of all iterations.
    In Exo: `fission`; in polyhedral compilers: distribution.  Cases: tests/primitives/fission.md
    """
    target = the_loop(program, loop)[1]
    around, last = the_statement(program, after)
    facts = {"loop": target.var, "after": after.name}
    if target not in around:
        repair = f"name a statement inside of `{target.var}`"
        raise UNDIVIDED(program, target.var, after.name, **facts, reason="it stands elsewhere", repair=repair)
    path = around[around.index(target) :]
    if all(x.body[-1] is inner for x, inner in zip(path, (*path[1:], last), strict=True)):
        repair = "name a statement with others behind it"
        raise UNDIVIDED(program, target.var, after.name, **facts, reason="nothing stands behind it", repair=repair)
    used = used_names(program)
    out, inner, behind = program, after.name, target.var
    for name in (x.var for x in reversed(path)):
        outside, whole = the_loop(out, LoopRef(name))
        at = 1 + [stmt_name(s) for s in whole.body].index(inner)
        inner = name
        if at == len(whole.body):
            continue
        require_serial(program, whole, "divide")
        first = whole.body[:at]
        if dependence := runs_ahead(out, name, [b.name for b in blocks_in(first)]):
            focus = (name, dependence.first, dependence.second)
            repair = _instead(program, loop, dependence.second)
            raise UNDIVIDED(program, *focus, **facts, reason=dependence, repair=repair)
        behind = fresh(name, used)
        head = replace(whole, var=behind)
        rest = replace_variables(whole.body[at:], {name: Var(behind)}, (*outside, head))
        out = replace_stmt(out, name, (replace(whole, body=first), replace(head, body=rest)))
    return Rewrite(out, (loop, LoopRef(behind)))


def _instead(program: Program, loop: LoopRef, block: str) -> str:
    """What to do where a block behind the cut needs one of a later iteration in front of it."""
    try:
        fission(program, loop, BlockRef(block))
    except ScheduleRefusal:
        return "leave it whole"
    return f"leave it whole, or divide it behind `{block}`"
