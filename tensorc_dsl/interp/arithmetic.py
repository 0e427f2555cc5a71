"""Operators of the schedule layer. The result of an operation on a drawn value keeps the formula, for the trace."""

from __future__ import annotations

import math
from typing import TypeVar

from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.limits import MAX_FORMULA
from tensorc_dsl.interp.problems import NO_RESULT, OPERANDS, TOO_LONG, TOO_MANY_BITS, fail
from tensorc_dsl.interp.values import Drawn, Value, bare, draws_of, is_number, kind_of, plain
from tensorc_dsl.syntax.tree import MAX_BITS
from tensorc_dsl.trace.distribution import literal


def _compute(op: str, a: int | float, b: int | float) -> int | float:
    """The result on plain numbers; `/` and `%` round down on integers. Raises ArithmeticError."""
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a // b if isinstance(a, int) and isinstance(b, int) else a / b
        case "%":
            return a % b
        case "min":
            return min(a, b)
        case "xor" if isinstance(a, int) and isinstance(b, int):
            return a ^ b
        case _:
            return max(a, b)


def binary(op: str, lhs: Value, rhs: Value, span: Span) -> Value:
    """`lhs op rhs`, also for `min`, `max` and, on ints, `xor`. Raises TschedError."""
    a, b = bare(lhs), bare(rhs)
    if op == "+" and isinstance(a, tuple) and isinstance(b, tuple):
        return a + b
    if op == "+" and isinstance(a, str) and isinstance(b, str):
        return _combine(op, lhs, rhs, a + b, span)
    if not (is_number(a) and is_number(b)):
        raise fail(OPERANDS, span, op=op, lhs=kind_of(a), rhs=kind_of(b))
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    text = f"{literal(a)} {op} {literal(b)}"
    try:
        value = _compute(op, a, b)
    except ArithmeticError as problem:
        raise fail(NO_RESULT, span, text=text, reason=problem) from None
    if isinstance(value, float) and math.isnan(value):
        raise fail(NO_RESULT, span, text=text, reason="it is not a number")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise fail(TOO_MANY_BITS, span, op=op, bits=value.bit_length(), most=MAX_BITS)
    return _combine(op, lhs, rhs, value, span)


def _combine(op: str, lhs: Value, rhs: Value, value: int | float | str, span: Span) -> Value:
    if not isinstance(lhs, Drawn) and not isinstance(rhs, Drawn):
        return value
    if isinstance(lhs, Drawn) and _is_neutral(rhs, op, behind=True):
        return lhs
    if isinstance(rhs, Drawn) and _is_neutral(lhs, op, behind=False):
        return rhs

    call = op in ("min", "max", "xor")

    def side(v: Value) -> str:
        if isinstance(v, Drawn):
            return v.code if v.tight or call else f"({v.code})"
        assert isinstance(v, bool | int | float | str)
        return literal(v)

    code = f"{op}({side(lhs)}, {side(rhs)})" if call else f"{side(lhs)} {op} {side(rhs)}"
    if len(code) > MAX_FORMULA:
        raise fail(TOO_LONG, span, what="a formula over draws", count=len(code), parts="characters", most=MAX_FORMULA)
    return Drawn(value, code, draws_of(lhs, rhs), tight=call)


def _is_neutral(value: Value, op: str, *, behind: bool) -> bool:
    """Whether `x op value` (`value op x` unless `behind`) is x, whatever number x is: also -0.0, and of the same type.

    0 is left in sums: -0.0 + 0 is 0.0."""
    return value == 1 and type(value) is int and (op == "*" or (op == "/" and behind))


Ordered = TypeVar("Ordered", float, str)


def compare(op: str, lhs: Value, rhs: Value, span: Span) -> bool:
    """The truth of a comparison; only numbers and strings are ordered. Raises TschedError."""
    a, b = plain(lhs), plain(rhs)
    if op in ("==", "!="):
        return _equal(a, b) == (op == "==")
    match a, b:
        case (int() | float(), int() | float()) if is_number(a) and is_number(b):
            return _ordered(op, a, b)
        case str(), str():
            return _ordered(op, a, b)
        case _:
            raise fail(OPERANDS, span, op=op, lhs=kind_of(a), rhs=kind_of(b))


def _equal(a: Value, b: Value) -> bool:
    """Whether the values are equal and of one kind; true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _ordered(op: str, a: Ordered, b: Ordered) -> bool:
    match op:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case _:
            return a >= b
