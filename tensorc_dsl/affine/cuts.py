"""Conditions under which a block writes an element, as conditions on the element.

Below loops that stand still a block writes a box of a buffer, and guards of partial tiles cut it: with
`P[t*8 + a*3 + b] = …` where `a*3 + b < 8`, an iteration of `a` writes `P[e]` for `t*8 + a*3 <= e < t*8 + a*3 + 3` only
where `e - t*8 < 8`. So boxes that overlap, as far as their loops go, may be parts that do not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensorc_dsl.affine.form import Context, Linear, Ranges, to_expr
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, add, free_vars, index, mul, sub


def cuts(
    subscripts: Sequence[Expr], where: Sequence[Expr], inner: Collection[str], ranges: Ranges, element: Sequence[Expr]
) -> tuple[Expr, ...]:
    """What conditions on a store say of the element that it writes, given as an expression per dimension.

    `subscripts` and `where` are over the variables of loops, of which those of `inner` do not appear in the answer: a
    condition is kept where what it says of them is a multiple of what one subscript says. The others say less than they
    could, so whatever element is written fulfils the answer.
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
    """The form of an expression without its terms over inner variables, and those terms."""
    form = linear(e, context)
    moving = {a: c for a, c in form.terms.items() if (a in inner if isinstance(a, str) else free_vars(a) & set(inner))}
    return Linear({a: c for a, c in form.terms.items() if a not in moving}, form.constant), Linear(moving, 0)


def _multiple(form: Linear, of: Linear) -> int | None:
    """The number that makes one of the other, if there is one."""
    atom = next(iter(form.terms))
    if atom not in of.terms or form.terms[atom] % of.terms[atom]:
        return None
    n = form.terms[atom] // of.terms[atom]
    return n if of.times(n) == form else None


__all__ = ["cuts"]
