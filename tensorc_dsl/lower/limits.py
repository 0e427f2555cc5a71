"""Bounds of a loop's variable from a condition: the least or the greatest value for which it can hold.

A condition over numbers of the data, `R[i] <= i32(p)`, is one over indices if each position is a number of its type. A number
of 64 bits is limited to the positions and one beyond them, so no difference leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.expr import Binary, Cast, Compare, CompareOp, Const, Expr, dims_in, dtype_of, free_vars, index
from tensorc_dsl.ir.numbers import holds, limits
from tensorc_dsl.lower.open_partition import cut_at
from tensorc_dsl.proof.sets.data_subscripts import depends_on_data
from tensorc_dsl.proof.sets.linear_forms import Context, Ranges, linear
from tensorc_dsl.proof.sets.simplify import bounds

NEAR = 2**60
"""Positions are closer to 0 than this: their differences from data that are limited to them do not leave 64 bits."""

TYPICAL = 1000
"""The size that is assumed for one that is not known, where only the gain depends on it."""

_SWAPPED: dict[CompareOp, CompareOp] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition cannot hold below `at`, or, if it is `upper`, from `at` on; from `sure` on, or below it, it holds for
    certain. At most `width` values lie between the two."""

    upper: bool
    at: Expr
    sure: Expr
    width: int


def limits_of(cond: Expr, var: str, inner: Ranges, ranges: Ranges) -> tuple[Limit, ...]:
    """The bounds of `var` from a condition for all values of the variables `inner`; none if it is not linear in it."""
    found: list[Limit] = []
    for c in over_indices(cond, var, {**ranges, **inner}):
        ops: tuple[CompareOp, ...] = ("<=", ">=") if c.op == "==" else (c.op,)
        for op in ops:
            cut = cut_at(Compare(op, c.lhs, c.rhs), var, inner, ranges)
            if cut is not None:
                found.append(Limit(cut.first, cut.maybe, cut.sure, cut.width))
    return tuple(found)


def over_indices(cond: Expr, var: str, ranges: Ranges) -> Iterator[Compare]:
    """The condition as a comparison of indices, if it compares a position with what does not depend on `var`."""
    if not isinstance(cond, Compare):
        return
    t = dtype_of(cond.lhs)
    if t == INDEX:
        yield cond
    elif t.is_integer:
        sides: tuple[tuple[Expr, Expr, CompareOp], ...] = (
            (cond.lhs, cond.rhs, cond.op),
            (cond.rhs, cond.lhs, _SWAPPED[cond.op]),
        )
        for own, other, op in sides:
            if var in free_vars(own) and var not in free_vars(other):
                position = _position(own, t, ranges)
                low, high = (None, None) if position is None else _reach(position, ranges)
                if position is not None and low is not None and high is not None:
                    yield Compare(op, position, _datum(other, t, low, high))


def _reach(position: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    low, high = bounds(position, ranges)
    low, high = -NEAR if low is None else low, NEAR if high is None else high
    return (low, high) if low >= -NEAR and high <= NEAR else (None, None)


def _datum(e: Expr, t: DType, low: int, high: int) -> Expr:
    """A number of the data as an index; one that is beyond all positions from `low` to `high` may be another such number."""
    made = Cast(e, INDEX)
    if t.kind == "uint":
        return made if t.bits < 64 else Cast(Binary("min", e, Const(max(high + 1, 0), t)), INDEX)
    return made if t.bits < 64 else Binary("min", Binary("max", made, index(low - 1)), index(high + 1))


def _position(e: Expr, t: DType, ranges: Ranges) -> Expr | None:
    """An index that is equal to `e`, a number of an integer type; None if it may be another one modulo the type's width."""
    made: Expr | None = None
    match e:
        case Cast(operand=x) if dtype_of(x) == INDEX:
            made = x
        case Const(value=int(n)):
            made = index(n)
        case Binary(op="+" | "-" | "*" as op, lhs=a, rhs=b):
            x, y = _position(a, t, ranges), _position(b, t, ranges)
            made = None if x is None or y is None else Binary(op, x, y)
        case _:
            return None
    if made is None:
        return None
    low, high = bounds(made, ranges)
    least, most = limits(t)
    if holds(t, INDEX) and isinstance(e, Cast):
        return made
    return made if low is not None and high is not None and least <= low and high <= most else None


def share(cond: Expr, var: str, ranges: Ranges) -> float:
    """The part of the values of `var` for which a condition holds, about, if its other side is anything: 1 if that is not
    known. Data say of few of them that they count; a condition over an open size is the end of a tile.
    """
    least = 1.0
    for c in over_indices(cond, var, ranges):
        if depends_on_data((c,)):
            return 0.0
        every = {v: _typical(r) for v, r in ranges.items()}
        context = Context(every)
        form = linear(c.lhs, context).minus(linear(c.rhs, context))
        factor = form.terms.get(var, 0)
        if not factor or c.op == "!=" or dims_in(c):
            continue
        low, high = context.range_of_terms({a: f for a, f in form.terms.items() if a != var}, form.constant)
        if low is None or high is None:
            continue
        first, last = every[var]
        least = min(least, _sampled(c.op, factor, (first, last), (low, high)))
    return least


def _typical(r: tuple[int | None, int | None]) -> tuple[int, int]:
    low = 0 if r[0] is None else r[0]
    return low, low + TYPICAL - 1 if r[1] is None else r[1]


def _sampled(op: CompareOp, factor: int, own: tuple[int, int], other: tuple[int, int]) -> float:
    if op == "==":
        return 1 / (own[1] - own[0] + 1)
    holds = 0
    for m in range(_SAMPLES):
        for n in range(_SAMPLES):
            x = own[0] + (own[1] - own[0]) * m // (_SAMPLES - 1)
            y = other[0] + (other[1] - other[0]) * n // (_SAMPLES - 1)
            d = factor * x + y
            holds += d < 0 if op == "<" else d <= 0 if op == "<=" else d > 0 if op == ">" else d >= 0
    return holds / _SAMPLES**2
