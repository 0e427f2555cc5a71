"""Tries laws on samples: the constants of an expression and their neighbours, simple numbers, the ends of the type.

An example that is found is valid: for floats it is recomputed exactly if the expression is algebraic, so that
rounding is never taken for a broken law. For bool and types of 8 bits all values are tried, which is a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import ceil, copysign, floor, inf, isfinite, isnan, nan, prod, trunc
from typing import Any, assert_never

import numpy as np

from tensorc_dsl.ir.arrays import Array, wide_dtype
from tensorc_dsl.ir.dtypes import BOOL, DType, highest, lowest
from tensorc_dsl.ir.expr import (
    COMPARISONS,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    children,
    dtype_of,
    rewrite_expr,
)
from tensorc_dsl.ir.reductions import Combiner
from tensorc_dsl.reference.values import Box, Values

_SIMPLE: tuple[float, ...] = (1.0, 2.0, 3.0, 0.5, 0.0, -1.0, -2.0, 0.75, -3.5)
_WHOLE: tuple[int, ...] = (1, 2, 3, 0, -1, -2, 5, 11, -7)
_MOST = 40
"""The number of sample values of a type."""
_ROWS = 64_000
"""The number of rows of values: all triples of so many values. They are tried in some 10 ms."""
_EXACT = 200
"""The number of candidates that are recomputed exactly."""

Number = Fraction | float


Pairs = Sequence[tuple[Expr, Expr]]
"""The two sides of a law, value by value."""


def example(pairs: Pairs, operands: Mapping[str, DType]) -> tuple[Any, ...] | None:
    """Values of the operands for which the sides differ, the simplest first; None if none is found."""
    columns = _samples([e for pair in pairs for e in pair], operands)
    count = len(next(iter(columns.values())))
    differ, known = np.zeros(count, bool), np.ones(count, bool)
    for a, b in pairs:
        x, y = (_values(e, columns, count) for e in (a, b))
        if not dtype_of(a).is_float:
            differ |= x != y
            continue
        scale = np.maximum.reduce([np.abs(v.astype(np.float64)) for v in (*columns.values(), x, y)])
        with np.errstate(all="ignore"):
            known &= np.isfinite(x) & np.isfinite(y)
            differ |= np.abs(x - y) > 1e-6 * np.maximum(1.0, scale)
    exact = [(a, b) for a, b in pairs if _is_algebraic(a) and _is_algebraic(b)]
    floats = any(t.is_float for t in operands.values())
    for at in np.flatnonzero(differ & known)[:_EXACT]:
        found = tuple(x[at].item() for x in columns.values())
        given = dict(zip(operands, map(Fraction, found), strict=True))
        if not floats or len(exact) < len(pairs) or any(differs(a, b, given) for a, b in exact):
            return found
    return None


def undefined_example(pairs: Pairs, operands: Mapping[str, DType]) -> tuple[Any, ...] | None:
    """Simple values for which a float of the first side is NaN and that of the second a number; None if none is found."""
    columns = _table([_SIMPLE if t.is_float else _whole(t) for t in operands.values()], operands)
    return _first_row(columns, [np.isnan(x) & np.isfinite(y) for x, y in _float_pairs(pairs, columns)])


def nan_example(pairs: Pairs, operands: Mapping[str, DType]) -> tuple[Any, ...] | None:
    """Values, at least one of them NaN, for which the sides differ: a float is NaN and the other not, or both are numbers."""
    columns = _table([(nan, *_SIMPLE[:6]) if t.is_float else _whole(t) for t in operands.values()], operands)
    some = np.logical_or.reduce([np.isnan(x) for x in columns.values() if x.dtype.kind == "f"])
    differ: list[Array] = []
    for x, y in _float_pairs(pairs, columns):
        with np.errstate(all="ignore"):
            near = np.abs(x - y) <= 1e-6 * np.maximum(1.0, np.abs(x))
        differ.append(some & ~(near | (x == y) | (np.isnan(x) & np.isnan(y))))
    others = [[_values(e, columns, len(some)) for e in pair] for pair in pairs if not dtype_of(pair[0]).is_float]
    return _first_row(columns, [*differ, *(some & (x != y) for x, y in others)])


def _float_pairs(pairs: Pairs, columns: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    count = len(next(iter(columns.values())))
    return [(_values(a, columns, count), _values(b, columns, count)) for a, b in pairs if dtype_of(a).is_float]


def _first_row(columns: Mapping[str, Array], conditions: Sequence[Array]) -> tuple[Any, ...] | None:
    """The first row in which one of the conditions holds."""
    at = np.flatnonzero(np.logical_or.reduce(conditions)) if conditions else np.zeros(0)
    return tuple(x[at[0]].item() for x in columns.values()) if at.size else None


def value(e: Expr, at: Sequence[Any], operands: Mapping[str, DType]) -> Any:
    """The value of an expression for given operands, in a wide type."""
    columns = {n: np.array([v], wide_dtype(t)) for (n, t), v in zip(operands.items(), at, strict=True)}
    return _values(e, columns, 1)[0].item()


def _table(choices: Sequence[Sequence[Any]], operands: Mapping[str, DType]) -> dict[str, Array]:
    """Rows of values: all of so many choices of each operand that there are not more than `_ROWS`, and random ones of all."""
    each = next((n for n in range(max(map(len, choices)), 1, -1) if prod(min(n, len(c)) for c in choices) <= _ROWS), 2)
    sizes = [min(each, len(c)) for c in choices]
    row = np.arange(min(prod(sizes), _ROWS))
    left = any(len(c) > each for c in choices)
    out: dict[str, Array] = {}
    for k, (c, (n, t)) in enumerate(zip(choices, operands.items(), strict=True)):
        at = row // prod(sizes[k + 1 :]) % sizes[k]
        if left:
            at = np.concatenate([at, np.random.default_rng(k).integers(0, len(c), _ROWS)])
        out[n] = np.array(c, wide_dtype(t))[at]
    return out


def _samples(parts: Sequence[Expr], operands: Mapping[str, DType]) -> dict[str, Array]:
    of_type = {t: _samples_of(parts, t) for t in {*operands.values()}}
    return _table([of_type[t] for t in operands.values()], operands)


def _whole(t: DType) -> Sequence[Any]:
    return (False, True) if t == BOOL else [n for n in _WHOLE[:6] if lowest(t) <= n <= highest(t)]


def _samples_of(parts: Sequence[Expr], t: DType) -> list[Any]:
    if t == BOOL:
        return [False, True]
    simple: list[Any] = list(_SIMPLE) if t.is_float else list(_WHOLE)
    near: list[Any] = []
    for c in _constants(parts):
        if t.is_float:
            near += [c, -c, 2 * c, c / 2, c + 1, c - 1, c * 0.875, c * 1.125, -2 * c]
        else:
            whole = int(c)
            near += [whole, -whole, 2 * whole, whole // 2, whole + 1, whole - 1, -whole // 2, -2 * whole]
    low, high = lowest(t), highest(t)
    ends: list[Any] = [] if t.is_float else [high, low, high - 1, low + 1, high // 2 + 1, low // 2 - 1]
    if t.is_float and all(map(_is_algebraic, parts)):
        ends = [1e9, -1e9, 3e38, -3e38, 1e-9]
    kept = [v for v in dict.fromkeys((*simple, *near)) if low <= v <= high and abs(v) != inf]
    return list(dict.fromkeys((*kept[: _MOST - len(ends)], *(v for v in ends if low <= v <= high))))


def _constants(parts: Sequence[Expr]) -> list[float]:
    """The numbers in expressions, the largest first, since random values rarely reach those."""
    found: set[float] = set()
    todo = list(parts)
    while todo:
        e = todo.pop()
        if isinstance(e, Const) and not isinstance(e.value, bool) and isfinite(e.value):
            found.add(e.value)
        todo += children(e)
    return sorted(found, key=lambda c: (-abs(c), c))


def _values(e: Expr, columns: Mapping[str, Array], count: int) -> Array:
    """The value of an expression for each row of its operands."""

    def row(x: Expr) -> Expr:
        return Load(x.buffer, (Var("n"),), x.dtype) if isinstance(x, Load) else x

    box = Box(("n",), (0,), (count,))
    with np.errstate(all="ignore"):
        return np.broadcast_to(Values("", dict(columns)).value(rewrite_expr(e, row), box, None), (count,))


# --- all values of small types ---------------------------------------------------------------------------------------


MOST_VALUES = 256
"""The number of values of a reducer up to which all are tried."""


def count_of(types: Sequence[DType]) -> int:
    """The number of all values of these types together; more than `MOST_VALUES` for floats."""
    return MOST_VALUES + 1 if any(t.is_float for t in types) else prod(2 if t == BOOL else 2**t.bits for t in types)


def at_place(place: int, types: Sequence[DType]) -> tuple[Any, ...]:
    """The values with a number, which counts from the lowest ones."""
    out: list[Any] = []
    for t in types:
        place, rest = divmod(place, count_of((t,)))
        out.append(bool(rest) if t == BOOL else rest + int(lowest(t)))
    return tuple(out)


def place(values: Sequence[Any], types: Sequence[DType]) -> Any:
    """The number of values, or of each row of arrays of them."""
    out: Any = 0
    for v, t in reversed([*zip(values, types, strict=True)]):
        out = out * count_of((t,)) + (v if t == BOOL else (v - int(lowest(t))) % 2**t.bits)
    return out


def table(c: Combiner) -> Array:
    """The numbers of what a reducer makes of all pairs of values."""
    count = count_of(c.dtypes)
    every = [at_place(n, c.dtypes) for n in range(count)]
    columns: dict[str, Array] = {}
    for names, repeated in ((c.before, np.repeat), (c.following, np.tile)):
        for k, (n, t) in enumerate(zip(names, c.dtypes, strict=True)):
            columns[n] = repeated(np.array([v[k] for v in every], wide_dtype(t)), count)
    made = [_values(e, columns, count * count).astype(np.int64) for e in c.results]
    return np.asarray(place(made, c.dtypes)).reshape(count, count)


def first_counterexample(apart: Array) -> tuple[int, ...] | None:
    """The index of the first true element of a table; None if there is none."""
    at = np.argwhere(apart)
    return tuple(map(int, at[0])) if at.size else None


def unassociative(made: Array) -> tuple[int, ...] | None:
    """Three values for which the two groupings differ; None if there are none."""
    for a, row in enumerate(made):
        if (at := first_counterexample(made[row] != row[made])) is not None:
            return a, *at
    return None


# --- exact values ----------------------------------------------------------------------------------------------------

_CALLS: dict[str, Callable[[Fraction], Fraction]] = {
    "abs": abs, "floor": lambda x: Fraction(floor(x)), "ceil": lambda x: Fraction(ceil(x)),
    "trunc": lambda x: Fraction(trunc(x)), "round": lambda x: Fraction(round(x)),
}  # fmt: skip


def _is_algebraic(e: Expr) -> bool:
    """Whether an expression of rational numbers has rational values, so that it can be computed exactly."""
    if isinstance(e, Bitcast) or (isinstance(e, Call) and e.function not in _CALLS):
        return False
    if isinstance(e, Cast) and not (e.dtype.is_float and dtype_of(e.operand).is_float):
        return False
    if isinstance(e, Binary) and not dtype_of(e).is_float and e.op not in ("min", "max"):
        return False  # it may wrap around
    return all(map(_is_algebraic, children(e)))


def differs(a: Expr, b: Expr, given: Mapping[str, Fraction]) -> bool:
    """Whether two algebraic expressions of floats have different values."""
    try:
        x, y = (_exact(e, given) for e in (a, b))
    except OverflowError:
        return False
    return isfinite(x) and isfinite(y) and x != y


def _exact(e: Expr, given: Mapping[str, Fraction]) -> Any:
    match e:
        case Const(value=value):
            return value if isinstance(value, bool) or not isfinite(value) else Fraction(value)
        case Load(buffer=name):
            return given[name]
        case Binary(op=op, lhs=a, rhs=b):
            return _arithmetic(op, _exact(a, given), _exact(b, given))
        case Compare(op=op, lhs=a, rhs=b):
            x, y = _exact(a, given), _exact(b, given)
            return COMPARISONS[op](x, y)
        case Logic(op=op, lhs=a, rhs=b):
            x, y = _exact(a, given), _exact(b, given)
            return x and y if op == "and" else x or y
        case Not(operand=a):
            return not _exact(a, given)
        case Select(cond=c, then=a, other=b):
            return _exact(a if _exact(c, given) else b, given)
        case Cast(operand=a):
            return _exact(a, given)
        case Call(function=f, args=(a,)):
            x = _exact(a, given)
            return _CALLS[f](x) if isinstance(x, Fraction) else abs(x) if f == "abs" else x
        case Call() | Bitcast() | Var() | Dim():
            raise AssertionError("not algebraic")
        case _:
            assert_never(e)


def _arithmetic(op: str, x: Number, y: Number) -> Number:
    match op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "/":
            if y:
                return x / y
            return nan if not x or isnan(x) else copysign(inf, x)
        case _:
            if isnan(x) or isnan(y):
                return nan
            return min(x, y) if op == "min" else max(x, y)
