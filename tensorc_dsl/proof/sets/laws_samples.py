"""Tries laws on samples: the constants of an expression and their neighbours, simple numbers, the ends of the type.

An example that is found is valid: for floats it is recomputed exactly if the expression is algebraic, so that
rounding is never taken for a broken law. For bool and types of 8 bits all values are tried, which is a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, copysign, floor, inf, isfinite, isnan, nan, trunc
from typing import Any, assert_never

import numpy as np

from tensorc_dsl.ir.arrays import Array, wide_dtype
from tensorc_dsl.ir.dtypes import BOOL, DType, highest, lowest
from tensorc_dsl.ir.expr import (
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
    transform,
)
from tensorc_dsl.reference.values import Box, Values

_SIMPLE: tuple[float, ...] = (1.0, 2.0, 3.0, 0.5, 0.0, -1.0, -2.0, 0.75, -3.5)
_WHOLE: tuple[int, ...] = (1, 2, 3, 0, -1, -2, 5, 11, -7)
_MOST = 40
"""The number of sample values: all triples of so many values are tried in some 10 ms."""
_EXACT = 200
"""The number of candidates that are recomputed exactly."""

Number = Fraction | float


def is_whole(t: DType) -> bool:
    """Whether all values of the type are tried."""
    return t.bits <= 8 and not t.is_float


def example(a: Expr, b: Expr, operands: Sequence[str], t: DType) -> tuple[Any, ...] | None:
    """Numbers of type `t` for which the two expressions differ, the simplest first; None if none is found."""
    rows = list(product(_samples((a, b), t), repeat=len(operands)))
    columns = {n: np.array([row[k] for row in rows], wide_dtype(t)) for k, n in enumerate(operands)}
    x, y = (_values(e, columns, len(rows)) for e in (a, b))
    if not t.is_float:
        differ = np.flatnonzero(x != y)
        return tuple(columns[n][differ[0]].item() for n in operands) if differ.size else None
    scale = np.maximum.reduce([np.abs(v) for v in (*columns.values(), x, y)])
    with np.errstate(all="ignore"):
        differ = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) > 1e-6 * np.maximum(1.0, scale)))
    algebraic = _is_algebraic(a) and _is_algebraic(b)
    for at in differ[:_EXACT]:
        found = tuple(columns[n][at].item() for n in operands)
        if not algebraic or differs(a, b, dict(zip(operands, map(Fraction, found), strict=True))):
            return found
    return None


def undefined_example(a: Expr, b: Expr, operands: Sequence[str]) -> tuple[float, ...] | None:
    """Simple numbers for which the first of two floats is NaN and the second is a number; None if none is found."""
    rows = list(product(_SIMPLE, repeat=len(operands)))
    x, y = (_values(e, _columns(rows, operands), len(rows)) for e in (a, b))
    differ = np.flatnonzero(np.isnan(x) & np.isfinite(y))
    return rows[int(differ[0])] if differ.size else None


def nan_example(a: Expr, b: Expr, operands: Sequence[str]) -> tuple[float, ...] | None:
    """Values, at least one of them NaN, for which two floats differ: one is NaN and the other not, or both are numbers."""
    rows = [r for r in product((nan, *_SIMPLE[:6]), repeat=len(operands)) if any(map(isnan, r))]
    x, y = (_values(e, _columns(rows, operands), len(rows)) for e in (a, b))
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= 1e-6 * np.maximum(1.0, np.abs(x))
    differ = np.flatnonzero(~(near | (x == y) | (np.isnan(x) & np.isnan(y))))
    return rows[int(differ[0])] if differ.size else None


def _columns(rows: Sequence[tuple[float, ...]], operands: Sequence[str]) -> dict[str, Array]:
    return {n: np.array([row[k] for row in rows], np.float64) for k, n in enumerate(operands)}


def value(e: Expr, given: Mapping[str, Any], t: DType) -> Any:
    """The value of an expression for given operands, in a wide type."""
    return _values(e, {n: np.array([v], wide_dtype(t)) for n, v in given.items()}, 1)[0].item()


def _samples(parts: Sequence[Expr], t: DType) -> list[Any]:
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
        return np.broadcast_to(Values("", dict(columns)).value(transform(e, row), box, None), (count,))


# --- all values of small types ---------------------------------------------------------------------------------------


def table(f: Expr, operands: Sequence[str], t: DType) -> Array:
    """The table of `f` over all pairs of values of a type of at most 8 bits; values are counted from the lowest."""
    low, count = (0, 2) if t == BOOL else (int(lowest(t)), 2**t.bits)
    left, right = np.meshgrid(np.arange(count) + low, np.arange(count) + low, indexing="ij")
    columns = {n: x.reshape(-1).astype(wide_dtype(t)) for n, x in zip(operands, (left, right), strict=True)}
    made = _values(f, columns, count * count).astype(np.int64) - low
    return (made % count).reshape(count, count)


def first(apart: Array) -> tuple[int, ...] | None:
    """The index of the first true element of a table; None if there is none."""
    at = np.argwhere(apart)
    return tuple(map(int, at[0])) if at.size else None


def unassociative(made: Array) -> tuple[int, ...] | None:
    """Three values for which the two groupings differ; None if there are none."""
    for a, row in enumerate(made):
        if (at := first(made[row] != row[made])) is not None:
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
            return {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[op]
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
