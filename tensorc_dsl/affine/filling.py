"""Copies that fill in padding: an element of an array, or zero where a condition does not hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.conditions import negate
from tensorc_dsl.affine.sets import NotAffine, feasible
from tensorc_dsl.affine.simplify import conjuncts
from tensorc_dsl.ir.expr import ZERO, Compare, Const, Expr, Load, Select, conjunction


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
