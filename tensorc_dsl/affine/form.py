"""Linear forms as data: a constant plus integer multiples of atoms, intervals over them, and their text order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import assert_never

from tensorc_dsl.ir.expr import Binary, CompareOp, Const, Dim, Expr, Var, index

Atom = str | Expr
Interval = tuple[int | None, int | None]
Ranges = Mapping[str, Interval]

OPEN: Interval = (None, None)


def joined(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    (low, high), (least, most) = a, b
    return (
        None if low is None or least is None else min(low, least),
        None if high is None or most is None else max(high, most),
    )


FAR = 2**62
"""Values further from 0 than this may overflow 64 bits in an addition, and change sign."""


@dataclass(slots=True)
class Linear:
    """`constant` + the sum of factor * atom over `terms`; no factor is 0. Immutable by convention."""

    terms: dict[Atom, int]
    constant: int

    def plus(self, other: Linear) -> Linear:
        if not other.terms:
            return self if not other.constant else Linear(self.terms, self.constant + other.constant)
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + c
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Linear(terms, self.constant + other.constant)

    def times(self, n: int) -> Linear:
        if n == 1:
            return self
        if n == 0:
            return Linear({}, 0)
        return Linear({a: c * n for a, c in self.terms.items()}, self.constant * n)

    def minus(self, other: Linear) -> Linear:
        return self.plus(other.times(-1))

    def plus_constant(self, n: int) -> Linear:
        return Linear(self.terms, self.constant + n) if n else self

    def content(self) -> int:
        """The greatest common divisor of the factors; 0 without terms."""
        return gcd(*self.terms.values())


class Context:
    """The ranges of the variables, and ranges of atoms that were computed so far."""

    __slots__ = ("_atoms", "ranges")

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._atoms: dict[Expr, Interval] = {}

    def atom(self, e: Expr, interval: Interval) -> Linear:
        """The form of one atom that is not a variable. If its interval has a single value, the form is a constant."""
        low, high = interval
        if low is not None and low == high:
            return Linear({}, low)
        self._atoms[e] = interval
        return Linear({e: 1}, 0)

    def variable(self, name: str) -> Linear:
        low, high = self.ranges.get(name, OPEN)
        if low is not None and low == high:
            return Linear({}, low)
        return Linear({name: 1}, 0)

    def dim(self, e: Dim) -> Linear:
        """The form of an open dimension, within its own range and the range in the context."""
        low, high = self.ranges.get(e.name, OPEN)
        least = e.low if low is None else max(low, e.low)
        most = e.high if high is None else high if e.high is None else min(high, e.high)
        return self.atom(e, (least, most))

    def atom_range(self, a: Atom) -> Interval:
        return self.ranges.get(a, OPEN) if isinstance(a, str) else self._atoms.get(a, OPEN)

    def range_of(self, form: Linear) -> Interval:
        return self.range_of_terms(form.terms, form.constant)

    def range_of_terms(self, terms: Mapping[Atom, int], constant: int) -> Interval:
        low: int | None = constant
        high: int | None = constant
        for a, c in terms.items():
            below, above = self.atom_range(a)
            if c < 0:
                below, above = above, below
            low = None if low is None or below is None else low + c * below
            high = None if high is None or above is None else high + c * above
        if _far(low, high) or ((low is None) != (high is None) and any(_far(*self.atom_range(a)) for a in terms)):
            return OPEN
        return low, high


def _far(low: int | None, high: int | None) -> bool:
    return (low is not None and low < -FAR) or (high is not None and high > FAR)


def expr_of(a: Atom) -> Expr:
    return Var(a) if isinstance(a, str) else a


def order_key(a: Atom) -> tuple[int, str]:
    if isinstance(a, str):
        return 0, a
    return 1, _text(a)


def _text(e: Expr) -> str:
    match e:
        case Var(name=name) | Dim(name=name):
            return name
        case Const(value=value):
            return str(value)
        case Binary(op=op, lhs=a, rhs=b):
            return f"({_text(a)} {op} {_text(b)})"
        case _:
            return repr(e)


def to_expr(form: Linear) -> Expr:
    """The form as an expression: larger factors first, then by name, then subtracted terms, then the constant."""
    terms = form.terms
    if not terms:
        return index(form.constant)
    if len(terms) == 1 and not form.constant:
        ((a, c),) = terms.items()
        return expr_of(a) if c == 1 else Binary("*", expr_of(a), index(c))
    ordered = sorted(terms.items(), key=lambda t: (t[1] < 0, -abs(t[1]), *order_key(t[0])))
    out: Expr | None = index(form.constant) if ordered[0][1] < 0 and form.constant > 0 else None
    constant = 0 if out is not None else form.constant
    for a, c in ordered:
        size = abs(c) if out is not None else c
        part = expr_of(a) if size == 1 else Binary("*", expr_of(a), index(size))
        out = part if out is None else Binary("+" if c > 0 else "-", out, part)
    assert out is not None  # there is at least one term
    if constant:
        out = Binary("+" if constant > 0 else "-", out, index(abs(constant)))
    return out


def decide(op: CompareOp, low: int | None, high: int | None) -> bool | None:
    """The truth of `d op 0` for a difference d in [low, high]; None if the interval does not decide it."""
    match op:
        case "<":
            return True if high is not None and high < 0 else False if low is not None and low >= 0 else None
        case "<=":
            return True if high is not None and high <= 0 else False if low is not None and low > 0 else None
        case ">":
            return True if low is not None and low > 0 else False if high is not None and high <= 0 else None
        case ">=":
            return True if low is not None and low >= 0 else False if high is not None and high < 0 else None
        case "==":
            if low == 0 and high == 0:
                return True
            return False if (low is not None and low > 0) or (high is not None and high < 0) else None
        case "!=":
            equal = decide("==", low, high)
            return None if equal is None else not equal
        case _:
            assert_never(op)
