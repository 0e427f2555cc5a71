"""Recognises exponentials of differences, whose sums may be taken relative to any shift.

With `F(x, r) = exp((x - r) * c)` the law is `F(x, m) = F(x, r) * F(r, m)` for all `x` and `m` and every finite `r`,
infinities and NaN included, since exp(p) * exp(q) = exp(p + q). So a sum of `F(x, m) * v` may be kept relative to a shift
that changes on the way. That the shift is the greatest `x` so far (the least, if `c` is negative) keeps the exponentials from
overflowing. Milakov and Gimelshein, Online normalizer calculation for softmax (2018), algorithm 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from tensorc_dsl.affine.parts import constant_value
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Binary, Call, Cast, Const, Expr, Load, dims_in, dtype_of, transform
from tensorc_dsl.ir.numbers import largest_finite

Extreme = Literal["max", "min"]


@dataclass(frozen=True, slots=True)
class Exponential:
    """`exp((value - shift) * c)` with a constant `c` that is finite and not 0."""

    value: Expr
    shift: Expr
    form: Expr
    """The argument, with a load of the buffer "" in the place of the difference."""
    reversed: bool
    """Whether the difference is `shift - value`."""

    def of(self, value: Expr, shift: Expr) -> Expr:
        """The same function of another value and another shift."""
        a, b = (shift, value) if self.reversed else (value, shift)
        difference = Binary("-", a, b)
        return Call("exp", (transform(self.form, lambda e: difference if _is_place(e) else e),))

    def agrees(self, other: Exponential) -> bool:
        """Whether both are the same function of a value and a shift."""
        return (self.form, self.reversed) == (other.form, other.reversed)


def exponential(e: Expr, op: Extreme) -> Exponential | None:
    """The exponential that `e` is, such that no value exceeds 1 if the shift is the `op` of all values; None for others."""
    if not isinstance(e, Call) or e.function != "exp":
        return None
    (argument,) = e.args
    found = _difference(argument)
    if found is None:
        return None
    difference, factor = found
    backwards = (factor < 0) != (op == "min")
    a, b = (difference.rhs, difference.lhs) if backwards else (difference.lhs, difference.rhs)
    place = Load("", (), dtype_of(difference))
    return Exponential(a, b, transform(argument, lambda x: place if x is difference else x), backwards)


def outermost_finite(op: Extreme, t: DType) -> Const:
    """The least finite number of a float type for "max", the greatest for "min": a shift before all values, and finite."""
    largest = largest_finite(t)
    return Const(-largest if op == "max" else largest, t)


def homogeneous(e: Expr, is_source: Callable[[Expr], bool]) -> bool:
    """Whether `e` is one source times a factor without sources. A conversion between floats counts as a factor of 1."""
    if is_source(e):
        return True

    def free(x: Expr) -> bool:
        return not any(map(is_source, _parts(x)))

    match e:
        case Binary(op="*", lhs=a, rhs=b):
            return (homogeneous(a, is_source) and free(b)) or (homogeneous(b, is_source) and free(a))
        case Binary(op="/", lhs=a, rhs=b):
            return homogeneous(a, is_source) and free(b)
        case Cast(operand=a, dtype=t):
            return t.is_float and dtype_of(a).is_float and homogeneous(a, is_source)
        case _:
            return False


def _parts(e: Expr) -> list[Expr]:
    found: list[Expr] = []

    def note(x: Expr) -> Expr:
        found.append(x)
        return x

    transform(e, note)
    return found


def _difference(e: Expr) -> tuple[Binary, float] | None:
    """The difference in an argument `(x - r) * c`, and `c`."""
    match e:
        case Binary(op="-"):
            return e, 1.0
        case Binary(op="*", lhs=a, rhs=b):
            return _scaled(a, _factor(b)) or _scaled(b, _factor(a))
        case Binary(op="/", lhs=a, rhs=b):
            c = _factor(b)
            return _scaled(a, None if c is None else 1 / c)
        case _:
            return None


def _scaled(e: Expr, c: float | None) -> tuple[Binary, float] | None:
    found = None if c is None else _difference(e)
    return None if found is None or c is None else (found[0], found[1] * c)


def _factor(e: Expr) -> float | None:
    """The value of a constant that is finite and not 0; None for others."""
    if dims_in(e):
        return None
    value = constant_value(e)
    return float(value) if value and isfinite(value) else None


def _is_place(e: Expr) -> bool:
    return isinstance(e, Load) and e.buffer == ""
