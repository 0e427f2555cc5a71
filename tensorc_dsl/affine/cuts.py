"""Turns conditions on a store into conditions on the element that it stores.

With outer loops fixed, a block writes a box of a buffer, and guards of partial tiles cut the box. For
`P[t*8 + a*3 + b] = …` where `a*3 + b < 8`, an iteration of `a` writes `P[e]` for `t*8 + a*3 <= e < t*8 + a*3 + 3` only
if `e - t*8 < 8`. So boxes that overlap according to their loops may have cut parts that do not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensorc_dsl.affine.form import Context, Linear, Ranges, to_expr
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, add, free_vars, index, mul, sub


def cuts(
    subscripts: Sequence[Expr], where: Sequence[Expr], inner: Collection[str], ranges: Ranges, element: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Conditions that a stored element satisfies; `element` has an expression for its coordinate in each dimension.

    `subscripts` and `where` are over loop variables; those of `inner` do not appear in the result. A condition is used if
    its terms over inner variables are a multiple of the inner terms of one subscript. Other conditions are dropped; the
    result over-approximates: every element that is written satisfies it.
    """
    context = Context(ranges)
    parts = [_parts(i, inner, context) for i in subscripts]
    out: list[Expr] = []
    for c in where:
        if not isinstance(c, Compare):
            continue
        outside, inside = _parts(sub(c.lhs, c.rhs), inner, context)
        if not inside.terms:
            out.append(Compare(c.op, to_expr(outside), ZERO))
            continue
        for (start, moving), e in zip(parts, element, strict=True):
            n = _multiple(inside, moving)
            if n is not None:
                here = sub(mul(e, index(n)), to_expr(start.times(n)))
                out.append(Compare(c.op, add(here, to_expr(outside)), ZERO))
                break
    return tuple(out)


def _parts(e: Expr, inner: Collection[str], context: Context) -> tuple[Linear, Linear]:
    """The form of an expression without its terms over inner variables, and these terms."""
    form = linear(e, context)
    moving = {a: c for a, c in form.terms.items() if (a in inner if isinstance(a, str) else free_vars(a) & set(inner))}
    return Linear({a: c for a, c in form.terms.items() if a not in moving}, form.constant), Linear(moving, 0)


def _multiple(form: Linear, of: Linear) -> int | None:
    """The number n with `form = n * of`; None if there is none."""
    atom = next(iter(form.terms))
    if atom not in of.terms or form.terms[atom] % of.terms[atom]:
        return None
    n = form.terms[atom] // of.terms[atom]
    return n if of.times(n) == form else None


__all__ = ["cuts"]
