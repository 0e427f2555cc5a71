"""The errors of single operations that come from those of their operands, to first order, for `tolerance`."""

from __future__ import annotations

import numpy as np

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import F64, DType
from tensorc_dsl.ir.expr import Binary, Expr, Load, Select, dtype_of, loads
from tensorc_dsl.ir.numbers import unit_roundoff
from tensorc_dsl.ir.program import Store
from tensorc_dsl.reference.maths import steps

Pair = tuple[Array, Array]
"""Values, and a bound on the error of each. Both arrays broadcast over the box."""


def adds_terms(s: Store) -> bool:
    """Whether a step adds a term of floats to the value before, which may be multiplied by a factor."""
    return dtype_of(s.value).is_float and _below_sum(s.value, s.buffer, below=False)


def _below_sum(e: Expr, name: str, *, below: bool) -> bool:
    """Whether a sum is above the one load of a buffer in an expression, and nothing but sums, products and choices."""
    match e:
        case Load(buffer=b):
            return below and b == name
        case Binary(op="+" | "-" | "*" as op, lhs=x, rhs=y):
            parts, below = (x, y), below or op != "*"
        case Select(then=x, other=y):
            parts = (x, y)
        case _:
            return False
    reading = [x for x in parts if any(load.buffer == name for load in loads(x))]
    return len(reading) == 1 and _below_sum(reading[0], name, below=below)


def roundoff(t: DType) -> float:
    """The relative error between an operation of a kernel and of the reference: the kernel rounds to the type, the reference
    to f64. A kernel of f64 may round a product and a sum together, which the reference does not."""
    return unit_roundoff(t) + unit_roundoff(F64) if t.is_float else 0.0


def settled(value: Array, error: Array, *operands: Pair) -> Array:
    """The error of results: none of exact operands, nor of an exact NaN, where derivatives say nothing."""
    if np.isfinite(error).all():
        return error
    known = np.ones((), np.bool_)
    for _, dx in operands:
        known = known & (dx == 0)
    for x, dx in operands:
        known = known | (np.isnan(value) & np.isnan(x) & (dx == 0))
    return np.where(known, 0.0, error)


def propagated(op: str, x: Array, dx: Array, y: Array, dy: Array, value: Array) -> Array:
    """The error of an operation that comes from its operands' errors, to first order."""
    match op:
        case "+" | "-":
            return both(dx, dy)
        case "*" if exact(dx):
            return dy if exact(dy) else _unless_infinite(np.abs(x) * dy, value, x, dx, y, dy)
        case "*" if exact(dy):
            return _unless_infinite(np.abs(y) * dx, value, x, dx, y, dy)
        case "*":
            return _unless_infinite(np.abs(x) * dy + np.abs(y) * dx + dx * dy, value, x, dx, y, dy)
        case "/":
            error = (dx + np.abs(value) * dy) / np.maximum(np.abs(y) - dy, np.abs(y) * 0.5)
            return _unless_infinite(error, value, x, dx, y, dy)
        case "min" | "max":
            return _of_greatest(x, dx, y, dy) if op == "max" else _of_greatest(-x, dx, -y, dy)
        case "%":  # it goes on with its operands, up to where their quotient passes a whole number
            turns = np.abs(np.floor(x / y))
            wide = (dx + np.abs(x / y) * dy) / np.maximum(np.abs(y) - dy, np.abs(y) * 0.5)
            return dx + turns * dy + np.where(steps(np.floor, x / y, wide) > 0, np.abs(y) + dy, 0.0)
        case _:
            return dx + dy + np.abs(value)


def _unless_infinite(error: Array, value: Array, x: Array, dx: Array, y: Array, dy: Array) -> Array:
    """The error of a product or quotient; none where an operand is an infinity for certain, and makes the result one: what a
    mask leaves out is -inf, and -inf times a scale is so, whatever the rounding of the scale.
    """
    if np.isfinite(error).all():
        return error
    sure = [np.where(np.isinf(v), np.isfinite(d), np.abs(v) > d) for v, d in ((x, dx), (y, dy))]
    return np.where(np.isinf(value) & (np.isinf(x) | np.isinf(y)) & sure[0] & sure[1], 0.0, error)


def _of_greatest(x: Array, dx: Array, y: Array, dy: Array) -> Array:
    """The error of the greater of two values."""
    if exact(dx) and exact(dy):
        return dx
    surely = np.maximum(x - dx, y - dy)
    return np.maximum(unless_below(surely, x, dx), unless_below(surely, y, dy))


def unless_below(surely: Array, value: Array, error: Array) -> Array:
    """The errors of values that may be the greatest, which is `surely` not less than that; of others, which do not count, 0.
    Such are masks of -1e30, whose errors are large.
    """
    return np.where(value + error < surely, 0.0, error)  # of NaN nothing is known, so its error counts


def exact(error: Array) -> bool:
    """Whether there is no error, which one number says."""
    return error.size == 1 and not error.any()


def both(one: Array, other: Array) -> Array:
    """Both errors together; none is not added to an array."""
    return other if exact(one) else one if exact(other) else one + other
