"""Whether an access can leave its buffer: proved, or refuted with the values at which it happens.

The integer set library decides affine accesses exactly: the indices in their ranges, under the conditions around the
access, with one subscript below 0 or past the end, is a set; the access is safe when it is empty, and its smallest point
is a counterexample. Open dimensions are indices that range over all sizes. What is not affine is left to intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import islpy as isl

from tensorc_dsl.affine.form import Interval, Ranges
from tensorc_dsl.affine.sets import affine_only, condition_text, set_name
from tensorc_dsl.affine.simplify import bounds, conjuncts, simplify
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Logic, Var, constant, free_vars, index, substitute

MAX_OPERATIONS = 2_000_000
"""About a second of isl's time; a question that takes longer counts as unproven."""


@dataclass(frozen=True, slots=True)
class Outside:
    """At the index values `at`, subscript number `position` is `value`, outside [0, `extent`)."""

    position: int
    value: int
    extent: int
    at: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unproven:
    """Subscript number `position` is within `interval` as far as is known, which is not enough."""

    position: int
    interval: Interval


def ranges_of(extents: Mapping[str, Expr], open_dims: Iterable[str] = ()) -> dict[str, Interval]:
    """The range of each index, 0 .. extent-1, and of each open dimension, 0 and up.

    An index whose extent is 0 has no values; it gets the range of one that has a single value, which is as true of none.
    """
    out: dict[str, Interval] = dict.fromkeys(open_dims, (0, None))
    for name, extent in extents.items():
        n = constant(extent)
        out[name] = (0, None) if n is None else (0, max(n - 1, 0))
    return out


def check_access(
    extents: Mapping[str, Expr],
    conditions: Iterable[Expr],
    subscripts: Iterable[Expr],
    shape: Iterable[Expr],
    open_dims: tuple[str, ...] = (),
) -> Outside | Unproven | None:
    """None when no index values within `extents` that satisfy `conditions` put a subscript outside `shape`."""
    ranges = ranges_of(extents, open_dims)
    guards = tuple(c for cond in conditions for c in conjuncts(simplify(cond, ranges)))
    for position, (subscript, extent) in enumerate(zip(subscripts, shape, strict=True)):
        if _within(subscript, extent, ranges):
            continue
        outside = Logic("or", Compare("<", subscript, ZERO), Compare(">=", subscript, extent))
        found, point = _smallest_point(extents, (*guards, outside), open_dims)
        if found is None:
            return Unproven(position, bounds(subscript, ranges))
        if found:
            used = free_vars(subscript) | free_vars(extent)
            at = tuple((n, v) for n, v in point.items() if n in used)
            return Outside(position, _value(subscript, point), _value(extent, point), at)
    return None


def _within(subscript: Expr, extent: Expr, ranges: Ranges) -> bool:
    low, high = bounds(subscript, ranges)
    n = constant(extent)
    return low is not None and low >= 0 and high is not None and n is not None and high < n


def _value(e: Expr, point: Mapping[str, int]) -> int:
    value = constant(simplify(substitute(e, {k: index(v) for k, v in point.items()}), {}))
    assert value is not None  # every variable has a value, and the point came from an affine form
    return value


def _smallest_point(
    extents: Mapping[str, Expr], conditions: tuple[Expr, ...], open_dims: tuple[str, ...]
) -> tuple[bool | None, dict[str, int]]:
    """Whether a point in the ranges satisfies the conditions, and the smallest; None when isl cannot say.

    The last condition has to be affine. Others that are not are dropped: what holds without them holds with them, but a
    point found without them proves nothing.
    """
    ranges = (
        *(Compare(">=", Var(d), ZERO) for d in open_dims),
        *(Compare(">=", Var(n), ZERO) for n in extents),
        *(Compare("<", Var(n), extent) for n, extent in extents.items()),
    )
    every = (*ranges, *conditions)
    kept = affine_only(every)
    if not kept or kept[-1] is not every[-1]:
        return None, {}
    names = [*open_dims, *extents]
    context = isl.Context()
    context.set_max_operations(MAX_OPERATIONS)
    try:
        text = " and ".join(f"({condition_text(c)})" for c in kept)
        found = isl.Set(f"{{ [{', '.join(map(set_name, names))}] : {text} }}", context)
        if found.is_empty():
            return False, {}
        if len(kept) < len(every):
            return None, {}
        point = found.lexmin().sample_point()
        coordinates = [int(str(point.get_coordinate_val(isl.dim_type.set, k))) for k in range(len(names))]
    except isl.Error:  # more operations than allowed
        return None, {}
    return True, dict(zip(names, coordinates, strict=True))
