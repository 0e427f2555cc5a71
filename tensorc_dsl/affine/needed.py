"""Conditions without which a fold changes nothing: `S[i] = S[i] + (x if c else 0.0)` needs `c`.

Elsewhere the fold adds the neutral element of its operation. That is exact for integers, and for minima, maxima and products
of floats, NaN among them: `x * 1.0`, `min(x, inf)` are `x`. A sum of floats differs in one case, `-0.0 + 0.0` is `0.0`. So a
sum counts only if what it adds to is never -0.0: it begins with another number, and a sum is -0.0 only if both of its terms
are. `docs/decisions/0092-loop-bounds-from-conditions.md` has the argument.
"""

from __future__ import annotations

from tensorc_dsl.affine.conditions import negate
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType
from tensorc_dsl.ir.expr import Binary, Cast, Const, Expr, Load, Logic, Not, Select, dtype_of
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.numbers import nearest
from tensorc_dsl.ir.program import Program, Store, blocks, is_atomic
from tensorc_dsl.ir.reductions import fold_of, identity


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
