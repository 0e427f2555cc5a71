"""Strides of simplified subscripts."""

from __future__ import annotations

from tensorc_dsl.ir.expr import Expr, free_vars
from tensorc_dsl.proof.sets.linear_forms import Context, linear


def stride(e: Expr, var: str) -> int | None:
    """The change of `e` per step of `var`; None if it varies."""
    form = linear(e, Context({}))
    if any(not isinstance(a, str) and var in free_vars(a) for a in form.terms):
        return None
    return form.terms.get(var, 0)
