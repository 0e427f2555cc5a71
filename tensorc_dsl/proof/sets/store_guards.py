"""Conditions of stores: as conditions on elements, those without which a fold changes nothing, and those that fill in
padding with zero.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType, nearest
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    add,
    conjunction,
    dtype_of,
    floormod,
    free_vars,
    index,
    mul,
    sub,
)
from tensorc_dsl.ir.node import by_identity
from tensorc_dsl.ir.program import Program, Store, blocks, is_atomic
from tensorc_dsl.ir.reductions import fold_of, identity
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, Ranges, linear, negate, to_expr
from tensorc_dsl.proof.sets.sets import NotAffine, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts

# Turns conditions on a store into conditions on the element that it stores.
#
# With outer loops fixed, a block writes a box of a buffer, and guards of partial tiles cut the box. For
# `P[t*8 + a*3 + b] = …` where `a*3 + b < 8`, an iteration of `a` writes `P[e]` for `t*8 + a*3 <= e < t*8 + a*3 + 3` only
# if `e - t*8 < 8`. So boxes that overlap according to their loops may have cut parts that do not.


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


# Conditions without which a fold changes nothing: `S[i] = S[i] + (x if c else 0.0)` needs `c`.
#
# Elsewhere the fold adds the neutral element of its operation. That is exact for integers, and for minima, maxima and
# products of floats, NaN among them: `x * 1.0`, `min(x, inf)` are `x`. A sum of floats differs in one case, `-0.0 + 0.0` is
# `0.0`. So a sum counts only if what it adds to is never -0.0: it begins with another number, and a sum is -0.0 only if
# both of its terms are. `docs/decisions/0092-loop-bounds-from-conditions.md` has the argument.


def parts(cond: Expr) -> tuple[Expr, ...]:
    """The conditions that hold exactly if `cond` does, in the order in which it asks them: each may be evaluated where those
    before it hold."""
    match cond:
        case Const(value=True):
            return ()
        case Logic(op="and", lhs=a, rhs=b) | Select(cond=a, then=b, other=Const(value=False)):
            return (*parts(a), *parts(b))
        case Select(cond=a, then=Const(value=False), other=b):
            return (*parts(negate(a)), *parts(b))
        case Not(operand=a) if (opposite := negate(a)) != cond:
            return parts(opposite)
        case _:
            return (cond,)


def needed(s: Store, above_zero: frozenset[str]) -> tuple[Expr, ...]:
    """The conditions without one of which a store leaves its buffer as it is, in the order in which it asks them; none if it
    is no fold. `above_zero` are the buffers of `never_negative_zero`.
    """
    fold = fold_of(s)
    if fold is None:
        return ()
    t = dtype_of(fold.value)
    if t == BOOL:
        return parts(fold.value if fold.op == "or" else negate(fold.value))
    start = identity(fold.op, t)
    if not (t.is_float and fold.op == "+"):
        return _other_than(fold.value, (start,))
    return _other_than(fold.value, (Const(-0.0, t), start) if s.buffer in above_zero else (Const(-0.0, t),))


def _other_than(e: Expr, neutral: tuple[Const, ...]) -> tuple[Expr, ...]:
    """The conditions without one of which the value of `e` is neutral."""
    t = dtype_of(e)
    zero = _zero(t)
    match e:
        case Select(cond=c, then=a, other=b) if b in neutral:
            return (*parts(c), *_other_than(a, neutral))
        case Select(cond=c, then=a, other=b) if a in neutral:
            return (*parts(negate(c)), *_other_than(b, neutral))
        case Cast(operand=x) if zero in neutral and dtype_of(x) != INDEX:
            return _other_than(x, (_zero(dtype_of(x)),))
        case Binary(op="*", lhs=a, rhs=b) if t.is_integer and zero in neutral:
            return (*_other_than(a, neutral), *_other_than(b, neutral))
        case _:
            return parts(e) if t == BOOL and zero in neutral else ()


def _zero(t: DType) -> Const:
    return Const(False if t == BOOL else 0.0 if t.is_float else 0, t)


@by_identity(64)
def never_negative_zero(program: Program) -> frozenset[str]:
    """The buffers of floats of which no element is ever -0.0: each store into them is another number, adds to its element, or
    copies from one of them. An element is stored before it is read, so the first store into it adds to nothing. Atomic
    updates may take numbers near 0 as 0, and keep their sign.
    """
    stores = [s for b in blocks(program) for s in (*b.init, *b.body)]
    atomic = {s.buffer for b in blocks(program) if is_atomic(b) for s in b.body}
    found = {s.buffer for s in stores if dtype_of(s.value).is_float} - atomic
    while bad := {s.buffer for s in stores if s.buffer in found and not _is_above(s, found)}:
        found -= bad
    return frozenset(found)


def _is_above(s: Store, above: set[str]) -> bool:
    match s.value:
        case Const(value=v, dtype=t):
            return Const(nearest(float(v), t), t) != Const(-0.0, t)  # a number may be too small for its type
        case Load(buffer=b):
            return b in above
        case _:
            fold = fold_of(s)
            return fold is not None and fold.op == "+"


# Copies that fill in padding: an element of an array, or zero where a condition does not hold.


@dataclass(frozen=True, slots=True)
class Filled:
    """What a copy stores: an element of an array, or zero where there is a condition and it does not hold."""

    load: Load
    cond: Expr | None


def filled(e: Expr) -> Filled | None:
    """What a copy stores as such; None if it is something else. Of conditions inside each other, all have to hold."""
    match e:
        case Load():
            return Filled(e, None)
        case Select(cond=cond, then=then, other=other) if _is_zero(other) and (inner := filled(then)):
            return Filled(inner.load, cond if inner.cond is None else conjunction((cond, inner.cond)))
        case Select(cond=cond, then=then, other=other) if _is_zero(then):
            return filled(Select(negate(cond), other, then))
        case _:
            return None


def _is_zero(e: Expr) -> bool:
    """Whether all bits of a value are 0: those of -0.0 are not."""
    return isinstance(e, Const) and e.value == 0 and math.copysign(1.0, e.value) > 0


def is_inside(f: Filled, shape: Sequence[Expr], extents: Mapping[str, Expr], given: Sequence[Expr] = ()) -> bool:
    """Whether a copy, in loops of these extents, is proved to copy the elements inside of an array of a shape, and to fill in
    or leave out all others, where all of `given` hold."""
    within = tuple(
        c for i, n in zip(f.load.indices, shape, strict=True) for c in (Compare(">=", i, ZERO), Compare("<", i, n))
    )
    conds = () if f.cond is None else tuple(conjuncts(f.cond))
    try:
        return not any(feasible(extents, (*given, *conds, negate(c))) for c in within) and not any(
            feasible(extents, (*given, *within, negate(c))) for c in conds
        )
    except NotAffine:
        return False
