"""Small questions about subscripts that are simplified already."""

from __future__ import annotations

from tensorc_dsl.affine.linear import Context, linear
from tensorc_dsl.ir.expr import Expr, free_vars


def stride(e: Expr, var: str) -> int | None:
    """By how much `e` grows per step of `var`; None when that varies."""
    form = linear(e, Context({}))
    if any(not isinstance(a, str) and var in free_vars(a) for a in form.terms):
        return None
    return form.terms.get(var, 0)
