"""Products, extremes and quotients of linear forms that are not linear themselves, as atoms with their ranges."""

from __future__ import annotations

from functools import reduce
from typing import Literal

from tensorc_dsl.affine.form import OPEN, Atom, Context, Interval, Linear, expr_of, order_key, to_expr
from tensorc_dsl.ir.expr import Binary, Expr, Var, constant, dims_in, free_vars, loads, mul


def product(a: Linear, b: Linear, context: Context) -> Linear:
    """The form of `a * b`."""
    if not a.terms:
        return b.times(a.constant)
    if not b.terms:
        return a.times(b.constant)
    out = a.times(b.constant).plus(Linear(b.terms, 0).times(a.constant))
    for x, m in a.terms.items():
        for y, n in b.terms.items():
            factors = sorted((*_factors(x), *_factors(y)), key=order_key)
            atom: Expr = expr_of(factors[0])
            for f in factors[1:]:
                atom = Binary("*", atom, expr_of(f))
            out = out.plus(
                context.atom(atom, _product_range(context.atom_range(x), context.atom_range(y))).times(m * n)
            )
    return out


def by_open_size(e: Expr) -> tuple[Expr, Expr] | None:
    """`x` and `Q` of a product `x * Q` of an expression over variables and a size that is open; None if `e` is none."""
    if not isinstance(e, Binary) or e.op != "*" or loads(e):
        return None
    factors = [expr_of(a) for a in _factors(e)]
    sizes = [f for f in factors if free_vars(f) == frozenset(d.name for d in dims_in(f))]
    others = [f for f in factors if f not in sizes]
    if not others or all(constant(f) is not None for f in sizes):
        return None
    return reduce(mul, others), reduce(mul, sizes)


def _factors(a: Atom) -> tuple[Atom, ...]:
    if isinstance(a, Binary) and a.op == "*":
        return (*_factors(_atom(a.lhs)), *_factors(_atom(a.rhs)))
    return (a,)


def _atom(e: Expr) -> Atom:
    return e.name if isinstance(e, Var) else e


def _product_range(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None
    return OPEN


def extreme(op: Literal["min", "max"], a: Linear, b: Linear, context: Context) -> Linear:
    """The form of `min(a, b)` or `max(a, b)`; that of one operand if it is known to be the result."""
    low, high = context.range_of(a.minus(b))
    if high is not None and high <= 0:
        return a if op == "min" else b
    if low is not None and low >= 0:
        return b if op == "min" else a
    (a0, a1), (b0, b1) = context.range_of(a), context.range_of(b)
    if op == "min":
        interval = (
            None if a0 is None or b0 is None else min(a0, b0),
            b1 if a1 is None else a1 if b1 is None else min(a1, b1),
        )
    else:
        interval = (
            b0 if a0 is None else a0 if b0 is None else max(a0, b0),
            None if a1 is None or b1 is None else max(a1, b1),
        )
    return context.atom(Binary(op, to_expr(a), to_expr(b)), interval)


def quotient_range(op: str, n: Linear, c: Linear, context: Context) -> Interval:
    """The range of a quotient or remainder by an expression that is not a number, but may be known to be positive."""
    low, high = context.range_of(c)
    if low is None or low <= 0:
        return OPEN
    if op == "%":
        return 0, None if high is None else high - 1
    below, above = context.range_of(n)
    # A larger divisor brings the quotient closer to 0 (or -1), a smaller one moves it away.
    least = None if below is None else below // low if below < 0 else 0 if high is None else below // high
    most = None if above is None else above // low if above >= 0 else -1 if high is None else above // high
    return least, most
