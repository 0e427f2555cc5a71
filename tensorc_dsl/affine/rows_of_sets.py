"""Integer sets of linear conditions, made row by row: isl takes several times as long to read the same set as text.

A condition here compares sums of multiples of variables. What has quotients, or joins conditions by `or`, is for `sets`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.affine import isl
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Compare, Const, Dim, Expr, Var, constant, dtype_of

_Row = dict[str, int]
"""A sum: the factor of each variable, and the number without one by the name "". An open dimension is a variable."""


def linear_set(conditions: Sequence[Expr]) -> isl.BasicSet | None:
    """The values of all variables and open dimensions in conditions at which these hold, as a set; None if a condition is not
    linear."""
    equal: list[_Row] = []
    positive: list[_Row] = []
    for c in conditions:
        if not isinstance(c, Compare) or dtype_of(c.lhs) != INDEX:
            return None
        row: _Row = {}
        sign = -1 if c.op in ("<", "<=") else 1
        if c.op == "!=" or not (_add(c.lhs, sign, row) and _add(c.rhs, -sign, row)):
            return None
        if c.op in ("<", ">"):
            row[""] = row.get("", 0) - 1
        (equal if c.op == "==" else positive).append(row)
    numbers = {v: n for n, v in enumerate(sorted({v for row in (*equal, *positive) for v in row if v}))}
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(numbers))
    local = isl.LocalSpace.from_space(space)
    out = isl.BasicSet.universe(space)
    for rows, empty in (
        (equal, isl.Constraint.equality_alloc(local)),
        (positive, isl.Constraint.inequality_alloc(local)),
    ):
        for row in rows:
            constraint = empty
            for v, factor in row.items():
                if v:
                    constraint = constraint.set_coefficient_val(isl.dim_type.set, numbers[v], factor)
                else:
                    constraint = constraint.set_constant_val(factor)
            out = out.add_constraint(constraint)
    return out


def _add(e: Expr, factor: int, row: _Row) -> bool:
    """Add a multiple of an expression to a row; False if it is no sum."""
    match e:
        case Var(name=name) | Dim(name=name):
            row[name] = row.get(name, 0) + factor
        case Const(value=value) if e.dtype == INDEX:
            row[""] = row.get("", 0) + factor * int(value)
        case Binary(op="+" | "-" as op, lhs=a, rhs=b):
            return _add(a, factor, row) and _add(b, factor if op == "+" else -factor, row)
        case Binary(op="*", lhs=a, rhs=b):
            if (n := constant(b)) is not None:
                return _add(a, factor * n, row)
            return (n := constant(a)) is not None and _add(b, factor * n, row)
        case _:
            return False
    return True


__all__ = ["linear_set"]
