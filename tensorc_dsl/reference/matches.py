"""Evaluates a sum over matches by its terms: `C[v] = sum[i] (V[i] if X[i] == v else 0)` takes each term once.

Only the plainest form is recognised here, a number of the data equal to an iterator; other sums are evaluated in full. So
this does not rely on the proofs by which schedules are found right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType
from tensorc_dsl.ir.expr import (
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Not,
    Select,
    Var,
    dtype_of,
    free_vars,
)
from tensorc_dsl.ir.numbers import consecutive, limits
from tensorc_dsl.ir.reductions import Fold, identity
from tensorc_dsl.reference.boxes import Box
from tensorc_dsl.reference.values import Values


@dataclass(frozen=True, slots=True)
class Matches:
    """Terms `value`, which count where all of `conditions` hold, at the numbers `places` along some axes."""

    value: Expr
    conditions: tuple[Expr, ...]
    places: tuple[tuple[int, Expr], ...]


def matches(update: Fold, box: Box, spatial: Sequence[int]) -> Matches | None:
    """The terms of a reduction if data say to which elements they belong; None for others."""
    if update.op not in ("+", "min", "max"):
        return None
    found = _term(update.value, identity(update.op, dtype_of(update.value)))
    if found is None:
        return None
    value, conditions = found
    places: dict[int, Expr] = {}
    rest: list[Expr] = []
    for c in conditions:
        place = _place(c, box, spatial)
        if place is None or place[0] in places:
            rest.append(c)
        else:
            places[place[0]] = place[1]
    chosen = {box.names[a] for a in places}
    if not chosen or any(free_vars(e) & chosen for e in (value, *rest, *places.values())):
        return None
    return Matches(value, tuple(rest), tuple(places.items()))


def _term(e: Expr, neutral: Const) -> tuple[Expr, tuple[Expr, ...]] | None:
    """A value and conditions without which the term is neutral; None if it has none."""
    match e:
        case Select(cond=c, then=a, other=b) if b == neutral:
            return a, _parts(c)
        case Select(cond=Not(operand=c), then=a, other=b) if a == neutral:
            return b, _parts(c)
        case Select(cond=Compare(op="!=", lhs=x, rhs=y), then=a, other=b) if a == neutral:
            return b, (Compare("==", x, y),)
        case Cast(operand=c, dtype=t) if dtype_of(c) == BOOL and t not in (BOOL, INDEX) and neutral.value == 0:
            return Const(1.0 if t.is_float else 1, t), _parts(c)
        case _:
            return None


def _parts(cond: Expr) -> tuple[Expr, ...]:
    match cond:
        case Logic(op="and", lhs=a, rhs=b):
            return (*_parts(a), *_parts(b))
        case _:
            return (cond,)


def _place(cond: Expr, box: Box, spatial: Sequence[int]) -> tuple[int, Expr] | None:
    """An axis and the data that are equal to it; None unless the type of the comparison has each position once."""
    if not isinstance(cond, Compare) or cond.op != "==":
        return None
    for own, data in ((cond.lhs, cond.rhs), (cond.rhs, cond.lhs)):
        x = own.operand if isinstance(own, Cast) else own
        if isinstance(x, Var) and x.name in box.names and not free_vars(data) & {x.name}:
            axis = box.names.index(x.name)
            if axis in spatial and box.start[axis] == 0 and box.size[axis] - 1 <= _last(dtype_of(own)):
                return axis, data
    return None


def _last(t: DType) -> int:
    return -1 if t == BOOL else limits(t)[1] if t.is_integer else consecutive(t)


@dataclass(frozen=True, slots=True)
class Placed:
    """Some terms: those where `alive` holds in the box `part`, at the positions `at` for each dimension of the result."""

    part: Box
    alive: Array
    at: tuple[Array, ...]

    def of(self, terms: Array) -> Array:
        """Those terms of all of the box."""
        return np.broadcast_to(terms, self.part.size)[self.alive]


def placed(values: Values, m: Matches, box: Box, limit: int, axes: Sequence[int]) -> Iterator[Placed]:
    """The terms of the box, of at most `limit` at once, for a result whose dimensions are the axes `axes`."""
    chosen = dict(m.places)
    once = Box(box.names, box.start, tuple(1 if a in chosen else n for a, n in enumerate(box.size)))
    for part in once.chunks(range(len(box.size)), limit):
        alive = np.ones(part.size, bool)
        for c in m.conditions:
            alive &= values.value(c, part, None)
        at: dict[int, Array] = {}
        for axis, data in m.places:
            found = values.value(data, part, None)
            inside = (found >= 0) & (found < box.size[axis])
            at[axis] = np.where(inside, found, 0).astype(np.int64)
            alive &= inside & (at[axis] == found)
        if alive.any():
            whole = (at[a] if a in at else values.value(Var(box.names[a]), part, None) for a in axes)
            yield Placed(part, alive, tuple(np.broadcast_to(w, part.size)[alive] for w in whole))
