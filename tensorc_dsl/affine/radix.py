"""Cuts an equality of mixed radix numbers into one for each of their digits.

    c*h + l == 0   if and only if   h == 0 and l == 0,   where -c < l < c

Places in memory are such numbers: the version of a buffer, the row, the element. Each digit has few variables, so one of them
refutes what cannot be equal, and a solver has less to eliminate.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.affine.conditions import TRUE
from tensorc_dsl.affine.form import Context, Linear, Ranges
from tensorc_dsl.affine.linear import comparison, difference
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Compare, Expr, dtype_of


def by_digits(conditions: Sequence[Expr], ranges: Ranges) -> tuple[Expr, ...]:
    """Conditions that hold exactly where the given ones do, with equalities cut into those of digits."""
    context, out = Context(ranges), list[Expr]()
    for c in conditions:
        match c:
            case Compare(op="==", lhs=a, rhs=b) if dtype_of(a) == INDEX:
                digits = _digits(difference(a, b, context), context)
                out += [e for d in digits if (e := comparison("==", d, context)) != TRUE] if digits else [c]
            case _:
                out.append(c)
    return tuple(out)


def _digits(form: Linear, context: Context) -> list[Linear]:
    """Forms that are all 0 exactly where this one is, the highest digit first."""
    out: list[Linear] = []
    for c in sorted({abs(f) for f in form.terms.values()}, reverse=True):
        high = {a: f // c for a, f in form.terms.items() if f % c == 0}
        low = {a: f for a, f in form.terms.items() if f % c}
        for rest in (form.constant % c, form.constant % c - c) if low else ():
            least, most = context.range_of(Linear(low, rest))
            if least is not None and most is not None and -c < least and most < c:
                out.append(Linear(high, (form.constant - rest) // c))
                form = Linear(low, rest)
                break
    return [*out, form] if out else []
