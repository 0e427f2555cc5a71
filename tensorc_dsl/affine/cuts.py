"""Turns conditions on a store into conditions on the element that it stores.

With outer loops fixed, a block writes a box of a buffer, and guards of partial tiles cut the box. For
`P[t*8 + a*3 + b] = …` where `a*3 + b < 8`, an iteration of `a` writes `P[e]` for `t*8 + a*3 <= e < t*8 + a*3 + 3` only
if `e - t*8 < 8`. So boxes that overlap according to their loops may have cut parts that do not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import permutations

from tensorc_dsl.affine.form import Context, Linear, Ranges, to_expr
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.ir.expr import ZERO, Binary, Compare, Const, Expr, add, floormod, free_vars, index, mul, sub


def cuts(
    subscripts: Sequence[Expr], where: Sequence[Expr], inner: Collection[str], ranges: Ranges, element: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Conditions that a stored element satisfies; `element` has an expression for its coordinate in each dimension.

    `subscripts` and `where` are over loop variables; those of `inner` do not appear in the result. A condition is used if
    its terms over inner variables are a multiple of the inner terms of one subscript, or of the number whose quotients and
    remainders are several. Other conditions are dropped; the result over-approximates: every element that is written
    satisfies it.
    """
    context = Context(ranges)
    whole = _whole(subscripts, element, inner, context)
    parts = [(*_parts(i, inner, context), e) for i, e in (*zip(subscripts, element, strict=True), *whole)]
    out: list[Expr] = []
    for start, moving, e in parts[len(subscripts) :]:
        low, high = context.range_of(moving)
        here = sub(e, to_expr(start))
        out += [] if low is None else [Compare(">=", here, index(low))]
        out += [] if high is None else [Compare("<=", here, index(high))]
    for c in where:
        if not isinstance(c, Compare):
            continue
        outside, inside = _parts(sub(c.lhs, c.rhs), inner, context)
        if not inside.terms:
            out.append(Compare(c.op, to_expr(outside), ZERO))
            continue
        for start, moving, e in parts:
            n = _multiple(inside, moving)
            if n is not None:
                here = sub(mul(e, index(n)), to_expr(start.times(n)))
                out.append(Compare(c.op, add(here, to_expr(outside)), ZERO))
                break
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Part:
    """`(whole / unit) % size`, without a remainder if there is no size, and the coordinate of the element that it is."""

    whole: Expr
    unit: int
    size: int | None
    at: Expr


def _whole(
    subscripts: Sequence[Expr], element: Sequence[Expr], inner: Collection[str], context: Context
) -> list[tuple[Expr, Expr]]:
    """The numbers whose quotients and remainders are subscripts, each with the same number of the element.

    Their terms over inner variables have no quotients themselves.
    """
    found = [x for s, e in zip(subscripts, element, strict=True) if (x := _part(s, e, context)) is not None]
    while (
        pair := next(((x, y, z) for x, y in permutations(found, 2) if (z := _joined(x, y, context))), None)
    ) is not None:
        found = [x for x in found if x not in pair[:2]] + [pair[2]]
    out: list[tuple[Expr, Expr]] = []
    for x in found:
        moving = _parts(x.whole, inner, context)[1]
        if x.unit == 1 and x.size is None and moving.terms and all(isinstance(a, str) for a in moving.terms):
            out.append((x.whole, x.at))
    return out


def _part(e: Expr, at: Expr, context: Context) -> _Part | None:
    """The part of a number that a subscript is; None if it has no quotient and no remainder."""
    unit, size = 1, None
    form = linear(e, context)
    match list(form.terms):
        case [Binary(op="%", lhs=x, rhs=Const(value=int(m)))] if m > 0 and form == linear(
            floormod(x, index(m)), context
        ):
            form, size = linear(x, context), m
        case _:
            pass
    while (quotient := next((a for a, c in form.terms.items() if isinstance(a, Binary) and c == 1), None)) is not None:
        match quotient:
            case Binary(op="/", lhs=x, rhs=Const(value=int(n))) if n > 0:
                form = form.minus(Linear({quotient: 1}, 0)).times(n).plus(linear(x, context))
                unit *= n
            case _:
                return None
    return None if (unit, size) == (1, None) else _Part(to_expr(form), unit, size, at)


def _joined(high: _Part, low: _Part, context: Context) -> _Part | None:
    """The part that consists of two: of the numbers of the lower one only the remainder counts."""
    if low.size is None or high.unit != low.unit * low.size:
        return None
    apart = linear(sub(high.whole, low.whole), context)
    if any(c % high.unit for c in (*apart.terms.values(), apart.constant)):
        return None
    size = None if high.size is None else low.size * high.size
    return _Part(high.whole, low.unit, size, add(mul(high.at, index(low.size)), low.at))


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
