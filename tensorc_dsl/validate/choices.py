"""Conditions of choices: those over loops and sizes alone decide which value an instance has."""

from __future__ import annotations

from functools import partial, reduce

from tensorc_dsl.affine.sets import NotAffine, condition_text
from tensorc_dsl.ir.dtypes import BOOL
from tensorc_dsl.ir.expr import Expr, Logic, Select, dtype_of, loads


def is_condition(e: Expr) -> bool:
    """Whether it is a condition over loops and sizes alone."""
    if dtype_of(e) != BOOL or loads(e):
        return False
    try:
        condition_text(e)
    except NotAffine:
        return False
    return True


def decided_first(e: Select) -> Select | None:
    """The same choice, by a condition over loops and sizes alone; None if none decides it.

    Of several conditions joined by `and` or `or` those that data decide come after the others. So does a condition that one
    over loops chooses, such as `F[t] if t < 9 else false`, and what that one chooses of the values.
    """
    if is_condition(e.cond):
        return e
    if isinstance(e.cond, Select) and is_condition(first := e.cond.cond):
        conds, *values = ((x.then, x.other) if isinstance(x, Select) and x.cond == first else (x, x) for x in _parts(e))
        then, other = (Select(conds[k], *(x[k] for x in values)) for k in range(2))
        return Select(first, then, other)
    if not isinstance(e.cond, Logic):
        return None
    both, parts = e.cond.op, _junction(e.cond.op, e.cond)
    known, open_ = [c for c in parts if is_condition(c)], [c for c in parts if not is_condition(c)]
    if not known:
        return None
    later = Select(reduce(partial(Logic, both), open_), e.then, e.other)
    first = reduce(partial(Logic, both), known)
    return Select(first, later, e.other) if both == "and" else Select(first, e.then, later)


def _parts(e: Select) -> tuple[Expr, Expr, Expr]:
    return e.cond, e.then, e.other


def _junction(op: str, e: Expr) -> tuple[Expr, ...]:
    return (*_junction(op, e.lhs), *_junction(op, e.rhs)) if isinstance(e, Logic) and e.op == op else (e,)
