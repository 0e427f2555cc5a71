"""Decides whether an access can leave its buffer, and whether index arithmetic can overflow 64 bits: proved, or refuted
with values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Call,
    Compare,
    Const,
    Dim,
    Expr,
    Logic,
    Select,
    Var,
    children,
    constant,
    dims_in,
    dtype_of,
    fold,
    free_vars,
    index,
    rewrite_expr,
    sub,
)
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Program, walk
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.encodings import DATA, INTERVALS, QUOTIENTS, QUOTIENTS_BY_SIZES, Encoded, encoded, smallest
from tensorc_dsl.proof.sets.linear_forms import FAR, Interval, Ranges, datum_range, is_datum, negate
from tensorc_dsl.proof.sets.sets import affine_only, condition_text, dim_conditions, set_name
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, extent_ranges, iter_ranges, simplify

# Decides whether an access can leave its buffer: proved, or refuted with index values for which it does.
#
# The integer set library decides affine accesses exactly. The set contains the indices in their ranges, under the
# conditions around the access, for which one subscript is below 0 or beyond the end. The access is safe if this set is
# empty, and the smallest point is a counterexample. Open dimensions range over their sizes, data over the values of their
# types. Accesses that are not affine are decided by intervals, or with what is not affine in them as anything within its
# interval.


MAX_OPERATIONS = 2_000_000
"""About a second of isl's time. A question that takes longer counts as unproven."""


@frozen
class Outside:
    """At the index values `at`, subscript number `position` is `value`, outside [0, `extent`)."""

    position: int
    value: int
    extent: int
    at: tuple[tuple[str, int], ...]


@frozen
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
    ranges = ranges_of(extents)
    found, tried = None, list[tuple[Expr, ...]]()
    # Integer sets divide by numbers exactly, unless a product with an open size is behind it.
    for loose in ((QUOTIENTS_BY_SIZES,), (QUOTIENTS,), (QUOTIENTS_BY_SIZES, INTERVALS)):
        terms = encoded((*subscripts, *conditions), DATA, *loose, extents=extents, ranges=ranges)
        if terms.exprs in tried:
            continue
        tried.append(terms.exprs)
        found = _check(terms, len(subscripts), shape, open_dims)
        if not isinstance(found, Unproven):
            break
    return found


def _check(
    terms: Encoded, count: int, shape: tuple[Expr, ...], open_dims: tuple[Dim, ...]
) -> Outside | Unproven | None:
    """As `check_access`, of `count` subscripts, then conditions."""
    subscripts, conditions = terms.exprs[:count], terms.exprs[count:]
    extents, ranges = terms.extents, terms.ranges
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
        found, point = _smallest_point(extents, (*terms.conditions, *guards, outside), open_dims, tuple(terms.terms))
        if found is None or (found and terms.loose):
            return Unproven(position, (low, high))
        if found:
            used = free_vars(subscript) | free_vars(extent)
            told = {n: format_expr(d.operand) for n, d in terms.terms.items() if is_datum(d)}
            at = tuple((told.get(n, n), v) for n, v in point.items() if n in used)
            return Outside(position, _value(subscript, point), _value(extent, point), at)
    return None


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

    return rewrite_expr(e, decided)


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

    value = constant(rewrite_expr(e, folded))
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
    every = tuple(part for c in (*ranges, *conditions) for part in conjuncts(c))
    kept = affine_only(every)
    if not kept or kept[-1] is not every[-1]:
        return None, {}
    names = [*(d.name for d in open_dims), *extents, *numbers]
    names += sorted(
        frozenset[str]().union(*map(free_vars, kept)).difference(names)
    )  # sizes that conditions are on, too
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


# Decides whether index arithmetic can overflow the 64 bits that a machine has for it.
#
# All proofs are about integers of any size. A kernel computes the same as long as no value leaves 64 bits;
# an overflow changes the sign of a sum, and a bound that was proved for it does not hold. Each value has an
# interval and a *weight*, the sum of its terms if all had one sign. Simplification rewrites `a - b < c` as
# `a < b + c`, and no intermediate sum of such a form is further from 0 than the weight.
#
# A number that is read may have any value of its type if `min` and `max` bound it. Operands of additions, multiplications,
# divisions and comparisons must stay below `FAR`, which leaves room for the result of one operation.


UNLIMITED = 2**20
"""The size that is assumed for one without a limit: a product of three such sizes exceeds any memory, and the sum of one and
a 64-bit number still counts as an overflow."""


@frozen
class _Reach:
    low: int
    high: int
    weight: int


class _TooFar(Exception):
    def __init__(self, expr: Expr) -> None:
        super().__init__(expr)
        self.expr = expr


def too_far(e: Expr, ranges: Ranges) -> Expr | None:
    """The first subexpression that may leave 64 bits for variables in their `ranges`, inner ones before outer ones;
    None if there is none. Values that are no indices wrap around in their own type, as they should.
    """
    try:
        _look(e, ranges)
    except _TooFar as found:
        return found.expr
    return None


def too_far_in(program: Program) -> Expr | None:
    """As `too_far`, for all subscripts, conditions and extents of a program."""
    for loops, s in walk(program.body):
        if isinstance(s, For):
            inside: Ranges = {}
            every: tuple[Expr, ...] = (s.extent,)
        else:
            around = extent_ranges(loops)
            found = next((x for e in (*(it.binding for it in s.iters), *s.where) if (x := too_far(e, around))), None)
            if found is not None:
                return found
            inside = iter_ranges(s.iters)
            every = tuple(e for store in (*s.init, *s.body) for e in (*store.indices, store.value))
        for e in every:
            if (found := too_far(e, inside)) is not None:
                return found
    return None


def _look(e: Expr, ranges: Ranges) -> None:
    """Raise _TooFar for the first subexpression of `e` that may leave 64 bits."""
    match e:
        case _ if dtype_of(e) == INDEX:
            _reach(e, ranges)
        case Compare(lhs=a, rhs=b) if dtype_of(a) == INDEX:
            if _reach(a, ranges).weight + _reach(b, ranges).weight > FAR:
                raise _TooFar(e)
        case _:
            for part in children(e):
                _look(part, ranges)


def _between(low: int, high: int) -> _Reach:
    return _Reach(low, high, max(abs(low), abs(high)))


def _reach(e: Expr, ranges: Ranges) -> _Reach:
    match e:
        case Const(value=value):
            return _between(int(value), int(value))
        case Var(name=name):
            low, high = ranges.get(name, (None, None))
            return _between(-UNLIMITED if low is None else low, UNLIMITED if high is None else high)
        case Dim(low=low, high=high):
            return _between(low, max(low, UNLIMITED) if high is None else high)
        case Binary(op="min" | "max" as op, lhs=a, rhs=b):
            x, y = _reach(a, ranges), _reach(b, ranges)
            best = min if op == "min" else max
            return _between(best(x.low, y.low), best(x.high, y.high))
        case Binary(op=op, lhs=a, rhs=b):
            made = _arithmetic(op, _reach(a, ranges), _reach(b, ranges))
            return made if made.weight <= FAR else _refuse(e)
        case Select(cond=c, then=a, other=b):
            _look(c, ranges)
            x, y = _reach(a, ranges), _reach(b, ranges)
            return _between(min(x.low, y.low), max(x.high, y.high))
        case Call(args=args):  # `abs` of an index
            high = max(_reach(a, ranges).weight for a in args)
            return _between(0, high) if high <= FAR else _refuse(e)
        case _ if is_datum(e):
            _look(e.operand, ranges)
            return _between(*datum_range(e))
        case _:
            raise AssertionError(f"an index of no known kind: {e}")


def _refuse(e: Expr) -> NoReturn:
    raise _TooFar(e)


def _arithmetic(op: str, x: _Reach, y: _Reach) -> _Reach:
    """The reach of `x op y`; its weight exceeds `FAR` if that of an operand does."""
    weight = max(x.weight, y.weight)
    match op:
        case "+":
            return _Reach(x.low + y.low, x.high + y.high, x.weight + y.weight)
        case "-":
            return _Reach(x.low - y.high, x.high - y.low, x.weight + y.weight)
        case "*":
            corners = [m * n for m in (x.low, x.high) for n in (y.low, y.high)]
            return _Reach(min(corners), max(corners), max(weight, x.weight * y.weight))
        case "/" if y.low > 0:
            corners = [m // n for m in (x.low, x.high) for n in (y.low, y.high)]
            return _Reach(min(corners), max(corners), weight)
        case "%" if y.low > 0:
            return _Reach(0, y.high - 1, weight)
        case _:  # `xor` stays within the bits of the longer operand, a quotient or remainder within both
            most = 2 ** max(weight.bit_length(), 1)
            return _Reach(-most, most, max(weight, most))
