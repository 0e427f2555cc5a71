"""Decides whether an access can leave its buffer: proved, or refuted with index values for which it does.

The integer set library decides affine accesses exactly. The set contains the indices in their ranges, under the conditions
around the access, for which one subscript is below 0 or beyond the end. The access is safe if this set is empty, and the
smallest point is a counterexample. Open dimensions range over their sizes, data over the values of their types.
Accesses that are not affine are decided by intervals, or with what is not affine in them as anything within its interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.conditions import negate
from tensorc_dsl.affine.data import Freed, freed
from tensorc_dsl.affine.form import Interval, Ranges
from tensorc_dsl.affine.quotients import Divided, divided, smallest
from tensorc_dsl.affine.sets import affine_only, condition_text, dim_conditions, set_name
from tensorc_dsl.affine.simplify import bounds, conjuncts, simplify
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Compare,
    Dim,
    Expr,
    Logic,
    Var,
    constant,
    dims_in,
    fold,
    free_vars,
    index,
    sub,
    transform,
)
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.numbers import limits
from tensorc_dsl.ir.print import format_expr

NONE: Mapping[str, Interval] = {}

MAX_OPERATIONS = 2_000_000
"""About a second of isl's time. A question that takes longer counts as unproven."""


@dataclass(frozen=True, slots=True)
class Outside:
    """At the index values `at`, subscript number `position` is `value`, outside [0, `extent`)."""

    position: int
    value: int
    extent: int
    at: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unproven:
    """Subscript number `position` is within `interval` as far as is known, which exceeds the extent."""

    position: int
    interval: Interval


def ranges_of(extents: Mapping[str, Expr]) -> dict[str, Interval]:
    """The range of each index: 0 to extent - 1.

    An index of extent 0 has no values; it gets the range of a single value, for which every claim about it is still true.
    """
    out: dict[str, Interval] = {}
    for name, extent in extents.items():
        high = _most(extent)
        out[name] = (0, None if high is None else max(high - 1, 0))
    return out


@by_identity(512)
def _most(extent: Expr) -> int | None:
    """The largest value of an extent. It is cached, since the accesses of a compute have few different extents."""
    n = constant(extent)
    return bounds(extent, {})[1] if n is None else n


def check_access(
    extents: Mapping[str, Expr],
    conditions: Iterable[Expr],
    subscripts: Iterable[Expr],
    shape: Iterable[Expr],
    open_dims: tuple[Dim, ...] = (),
) -> Outside | Unproven | None:
    """None if no index values within `extents` that satisfy `conditions` put a subscript outside of `shape`."""
    subscripts, conditions, shape = tuple(subscripts), tuple(conditions), tuple(shape)
    data = freed((*subscripts, *conditions))
    found = None
    # Integer sets divide by numbers exactly, unless a product with an open size is behind it.
    for numbers in (False, True):
        parts = divided(data.exprs, extents, numbers=numbers)
        if numbers and not parts.extents:
            break
        found = _check({**extents, **parts.extents}, parts, data, len(subscripts), shape, open_dims)
        if not isinstance(found, Unproven):
            return found
    parts = divided(data.exprs, extents, numbers=False)
    extents = {**extents, **parts.extents}
    linear, unknown = _without_products(parts.exprs, {**ranges_of(extents), **data.intervals})
    if not unknown:
        return found
    return _check(extents, Divided(linear, parts.extents), data, len(subscripts), shape, open_dims, unknown)


def _without_products(exprs: Iterable[Expr], ranges: Ranges) -> tuple[tuple[Expr, ...], dict[str, Interval]]:
    """The expressions with a variable in place of each product, quotient and remainder that is not affine, and the intervals
    of these variables. So `clamp(i / max(R, 1), 0, G - 1)` is proved by its clamp alone.
    """
    names: dict[Expr, Var] = {}
    unknown: dict[str, Interval] = {}

    def replaced(e: Expr) -> Expr:
        if not isinstance(e, Binary) or _affine_operator(e):
            return e
        if e not in names:
            names[e] = Var(f"unknown{len(names)}'")  # no loop's name ends in a quote
            unknown[names[e].name] = bounds(e, {**ranges, **unknown})
        return names[e]

    return tuple(transform(e, replaced) for e in exprs), unknown


def _affine_operator(e: Binary) -> bool:
    """Whether the operator keeps an affine form affine."""
    match e.op:
        case "*":
            return constant(e.lhs) is not None or constant(e.rhs) is not None
        case "/" | "%":
            return (by := constant(e.rhs)) is not None and by > 0
        case "xor":
            return False
        case _:
            return True


def _check(
    extents: Mapping[str, Expr],
    parts: Divided,
    data: Freed,
    count: int,
    shape: tuple[Expr, ...],
    open_dims: tuple[Dim, ...],
    unknown: Mapping[str, Interval] = NONE,
) -> Outside | Unproven | None:
    """As `check_access`, of expressions without data and divisions by open sizes: `count` subscripts, then conditions.
    `unknown` variables are anything within their intervals.
    """
    subscripts, conditions = parts.exprs[:count], parts.exprs[count:]
    ranges = {**ranges_of(extents), **data.intervals, **unknown}
    free = (*data.ranges, *(c for n, interval in unknown.items() for c in _within(n, interval)))
    guards = tuple(c for cond in conditions for c in conjuncts(simplify(cond, ranges)))
    facts: frozenset[Expr] | None = None
    for position, (subscript, extent) in enumerate(zip(subscripts, shape, strict=True)):
        if isinstance(subscript, Var) and extents.get(subscript.name) == extent:
            continue
        low, high = bounds(subscript, ranges)
        n = constant(extent)
        if facts is None:
            facts = _facts(guards, ranges)
        above = (low is not None and low >= 0) or _not_negative(subscript, extents, facts, ranges)
        if above and high is not None and n is not None and high < n:
            continue
        if above and _not_negative(sub(sub(extent, subscript), ONE), extents, facts, ranges):
            continue
        outside = Logic("or", Compare("<", subscript, ZERO), Compare(">=", subscript, extent))
        found, point = _smallest_point(extents, (*free, *guards, outside), open_dims, (*data.data, *unknown))
        # A part of some index may not have the value of the point.
        if found is None or (found and (parts.extents or unknown)):
            return Unproven(position, (low, high))
        if found:
            used = free_vars(subscript) | free_vars(extent)
            told = {n: format_expr(d.operand) for n, d in data.data.items()}
            at = tuple((told.get(n, n), v) for n, v in point.items() if n in used)
            return Outside(position, _value(subscript, point), _value(extent, point), at)
    return None


def _within(name: str, interval: Interval) -> tuple[Expr, Expr]:
    """The conditions that keep a variable within its interval, or what an index can be where that has no end."""
    (low, high), (least, most) = interval, limits(INDEX)
    return (
        Compare("<=", index(least if low is None else low), Var(name)),
        Compare("<=", Var(name), index(most if high is None else high)),
    )


def without_open_quotients(e: Expr, extents: Mapping[str, Expr]) -> Expr:
    """`e` with `x / c` replaced by 0 and `x % c` by x if c is open and x is known to be from 0 to c - 1.

    A convolution contains `co / (CO / groups)`: with one group this is group 0 for every channel, whatever `CO` is.
    """
    ranges = ranges_of(extents)

    def decided(n: Expr) -> Expr:
        if isinstance(n, Binary) and n.op in ("/", "%") and dims_in(n.rhs):
            room = sub(sub(n.rhs, n.lhs), ONE)
            if all(_not_negative(x, extents, frozenset(), ranges) for x in (n.lhs, room)):
                return ZERO if n.op == "/" else n.lhs
        return n

    return transform(e, decided)


def below(e: Expr, limit: int, open_dims: tuple[Dim, ...]) -> tuple[tuple[str, int], ...] | None:
    """Sizes of open dimensions for which an expression over them is smaller than `limit`; None if there are none.

    The answer is empty if there may be such sizes but none are known.
    """
    low = bounds(e, {})[0]
    return None if low is not None and low >= limit else broken_by(Compare(">=", e, index(limit)), open_dims)


def broken_by(condition: Expr, open_dims: tuple[Dim, ...]) -> tuple[tuple[str, int], ...] | None:
    """Sizes of open dimensions for which a condition on sizes does not hold; None if there are none.

    The answer is empty if there may be such sizes but none are known.
    """
    found, point = _smallest_point({}, (negate(condition),), open_dims)
    if found is False:
        return None
    used = free_vars(condition) | {d.name for d in dims_in(condition)}
    return tuple((n, v) for n, v in point.items() if n in used)


def _facts(guards: Iterable[Expr], ranges: Ranges) -> frozenset[Expr]:
    """The expressions that the guards say are not negative, as simplified by `simplify`."""
    out: list[Expr] = []
    for g in guards:
        match g:
            case Compare(op="<=", lhs=a, rhs=b) | Compare(op=">=", lhs=b, rhs=a):
                out.append(sub(b, a))
            case Compare(op="<", lhs=a, rhs=b) | Compare(op=">", lhs=b, rhs=a):
                out.append(sub(sub(b, a), ONE))
            case _:
                pass
    return frozenset(simplify(e, ranges) for e in out)


def _not_negative(e: Expr, extents: Mapping[str, Expr], facts: frozenset[Expr], ranges: Ranges) -> bool:
    """Whether an expression is not negative because a guard says so, or because its smallest value is not.

    This decides most questions about open sizes, in a tenth of the time of the exact answer.
    """
    if facts and simplify(e, ranges) in facts:
        return True
    least = smallest(e, extents, ranges)
    low = None if least is None else bounds(least, ranges)[0]
    return low is not None and low >= 0


def _value(e: Expr, point: Mapping[str, int]) -> int:
    """The number that an affine expression is at a point; of any size, so that `simplify` would not tell."""

    def folded(n: Expr) -> Expr:
        if isinstance(n, (Var, Dim)):
            return index(point[n.name])
        if isinstance(n, Binary) and (a := constant(n.lhs)) is not None and (b := constant(n.rhs)) is not None:
            made = fold(n.op, a, b)
            return n if made is None else index(made)
        return n

    value = constant(transform(e, folded))
    assert value is not None  # every variable has a value, and the point satisfies an affine form
    return value


def _smallest_point(
    extents: Mapping[str, Expr], conditions: tuple[Expr, ...], open_dims: tuple[Dim, ...], numbers: tuple[str, ...] = ()
) -> tuple[bool | None, dict[str, int]]:
    """Whether a point in the ranges satisfies the conditions, and the smallest such point; None if isl cannot decide.

    The conditions limit `numbers` from both sides. The last condition has to be affine. Other conditions that are not are
    dropped: a proof without them also holds with them, but a point found without them proves nothing.
    """
    ranges = (
        *dim_conditions(open_dims),
        *(Compare(">=", Var(n), ZERO) for n in extents),
        *(Compare("<", Var(n), extent) for n, extent in extents.items()),
    )
    every = (*ranges, *conditions)
    kept = affine_only(every)
    if not kept or kept[-1] is not every[-1]:
        return None, {}
    names = [*(d.name for d in open_dims), *extents, *numbers]
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
    except isl.Error:  # the limit of operations
        return None, {}
    return True, dict(zip(names, coordinates, strict=True))
