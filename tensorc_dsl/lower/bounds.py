"""Strides of simplified subscripts."""

from __future__ import annotations

from tensorc_dsl.affine.form import Context
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.ir.expr import Expr, free_vars


def stride(e: Expr, var: str) -> int | None:
    """The change of `e` per step of `var`; None if it varies."""
    form = linear(e, Context({}))
    if any(not isinstance(a, str) and var in free_vars(a) for a in form.terms):
        return None
    return form.terms.get(var, 0)
