"""The normal form of an expression, for proofs that two are equal: polynomials over opaque atoms, with infinities."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from math import inf, isnan
from typing import assert_never

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, DType, limits
from tensorc_dsl.ir.expr import (
    Binary,
    BinaryOp,
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
    dtype_of,
)
from tensorc_dsl.ir.maths import CONDITIONS, MATHS, Domain

# The values of a normal form and their arithmetic: polynomials over opaque atoms, infinities and NaN.
#
# Atoms are operands, `min` and `max` of a set of values, conditional values and calls; an atom is identified by the values
# that it consists of. A simplification that could lose a NaN or an infinity, such as `log(x) - log(x)`, raises `Unknown`.


TERMS = 400
"""The largest number of terms of a polynomial."""


class Unknown(Exception):
    """The normal form does not decide the question."""


class Special(Enum):
    """Floats that are not numbers: infinities and NaN."""

    INF = "inf"
    LOW = "-inf"
    NAN = "NaN"


@frozen
class Polynomial:
    """A sum of terms, each a product of powers with a nonzero factor."""

    terms: frozenset[tuple[Monomial, Fraction]]


@frozen
class Test:
    """An undecided condition: its kind and its operands."""

    kind: str
    parts: tuple[Part, ...]


@frozen
class Atom:
    """An opaque value: its kind and its parts. A `partial` one may be NaN or infinite for some numbers."""

    kind: str
    parts: tuple[Part, ...] = ()
    partial: bool = False
    least: int = -1
    """1: always above 0; 0: never below 0; -1: unknown."""
    values: frozenset[Normal] = frozenset()
    """The set of values of a `min` or `max`."""


Monomial = frozenset[tuple[Atom, int]]
Normal = Polynomial | Special
Condition = bool | Test
Part = Normal | Condition | str | frozenset[Normal | Condition]

NAN = Special.NAN
_ZERO = Polynomial(frozenset())
_ONE: Monomial = frozenset()


def number(value: float | Fraction) -> Normal:
    """The normal form of a number, an infinity or NaN."""
    if isinstance(value, float) and (isnan(value) or abs(value) == inf):
        return NAN if isnan(value) else Special.INF if value > 0 else Special.LOW
    return Polynomial(frozenset(((_ONE, Fraction(value)),))) if value else _ZERO


_AT: dict[tuple[str, Normal], Normal] = {(f, number(x)): number(y) for f, m in MATHS.items() for x, y in m.at}
"""Calls of constants whose values are exact."""


# --- what a normal form shows ----------------------------------------------------------------------------------------


def value_of(p: Normal) -> Fraction | None:
    """The value of a constant polynomial; None for others."""
    if isinstance(p, Special) or len(p.terms) > 1:
        return None
    return next((c if m == _ONE else None for m, c in p.terms), Fraction(0))


def _single(p: Normal) -> Atom | None:
    """The atom that a normal form consists of; None for others."""
    if isinstance(p, Polynomial) and len(p.terms) == 1:
        for m, c in p.terms:
            for a, k in m if len(m) == 1 else ():
                return a if c == 1 and k == 1 else None
    return None


def is_partial(*parts: Part) -> bool:
    """Whether some of the values may be NaN or infinite though all operands are numbers."""
    return any(
        isinstance(p, Special) or (isinstance(p, Polynomial) and any(a.partial for m, _ in p.terms for a, _ in m))
        for p in parts
    )


def least_sign(p: Normal) -> int:
    """1 for a float that is recognised as positive, 0 for one that is recognised as nonnegative, else -1."""
    if isinstance(p, Special):
        return -1
    signs = [_sign(m) if c > 0 else -1 for m, c in p.terms]
    return -1 if -1 in signs else max(signs, default=0)


def _sign(m: Monomial) -> int:
    return min((a.least if k % 2 else max(a.least, 0) for a, k in m), default=1)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def atom(a: Atom) -> Polynomial:
    """The polynomial that consists of one atom."""
    return Polynomial(frozenset(((frozenset(((a, 1),)), Fraction(1)),)))


def opaque(kind: str, parts: tuple[Part, ...], partial: bool = False, least: int = -1) -> Normal:
    """An opaque value of that kind. Raises Unknown if one of its parts is an infinity or NaN."""
    if any(isinstance(p, Special) for p in parts):
        raise Unknown
    return atom(Atom(kind, parts, partial or is_partial(*parts), least))


def wrapped_polynomial(p: Normal, t: DType) -> Normal:
    """The polynomial with its factors reduced modulo the width of an integer type."""
    if not t.is_integer or isinstance(p, Special):
        return p
    turn, (low, _) = 2**t.bits, limits(t)
    return Polynomial(frozenset((m, r) for m, c in p.terms if (r := (c - low) % turn + low)))


def _collected(terms: list[tuple[Monomial, Fraction]]) -> Polynomial:
    out: dict[Monomial, Fraction] = {}
    for m, c in terms:
        out[m] = out.get(m, Fraction(0)) + c
    if len(out) > TERMS or any(not c and any(a.partial for a, _ in m) for m, c in out.items()):
        raise Unknown
    return Polynomial(frozenset((m, c) for m, c in out.items() if c))


def binary(op: BinaryOp, p: Normal, q: Normal, t: DType) -> Normal:
    """`p op q` in the type. Raises Unknown."""
    match op:
        case "+":
            return wrapped_polynomial(_add(p, q), t)
        case "-":
            return wrapped_polynomial(_add(p, _multiply(number(-1), q)), t)
        case "*":
            return wrapped_polynomial(_multiply(p, q), t)
        case "min" | "max":
            return _extreme(op, p, q, t)
        case "/" if t.is_float:
            return _multiply(p, _inverse(q))
        case "/" | "%":
            return opaque(op, (p, q), partial=t.is_float)
        case "xor":
            return _exclusive(p, q, t)
        case _:
            assert_never(op)


def _add(p: Normal, q: Normal) -> Normal:
    if isinstance(p, Polynomial) and isinstance(q, Polynomial):
        return _collected([*p.terms, *q.terms])
    if NAN in (p, q) or {p, q} == {Special.INF, Special.LOW}:
        return NAN
    special, other = (p, q) if isinstance(p, Special) else (q, p)
    if isinstance(other, Polynomial) and is_partial(other):
        raise Unknown
    return special


def _multiply(p: Normal, q: Normal) -> Normal:
    if isinstance(p, Special) or isinstance(q, Special):
        return _special_product(p, q) if isinstance(p, Special) else _special_product(q, p)
    if (p == _ZERO and is_partial(q)) or (q == _ZERO and is_partial(p)) or len(p.terms) * len(q.terms) > TERMS:
        raise Unknown
    terms: list[tuple[Monomial, Fraction]] = []
    for m, c in p.terms:
        for n, d in q.terms:
            product, rest = _product(m, n)
            more = Polynomial(frozenset(((product, c * d),)))
            made = more if rest is None else _multiply(rest, more)
            assert isinstance(made, Polynomial)
            terms += made.terms
    return _collected(terms)


def _special_product(x: Normal, y: Normal) -> Normal:
    """The product of an infinity or NaN and another value."""
    sign = {Special.INF: 1, Special.LOW: -1}
    if NAN in (x, y):
        return NAN
    factor = sign[y] if isinstance(y, Special) else value_of(y)
    if factor is None and (least_sign(y) != 1 or is_partial(y)):
        raise Unknown
    if factor == 0:
        return NAN
    return x if factor is None or factor > 0 else Special.LOW if x is Special.INF else Special.INF


def _product(m: Monomial, n: Monomial) -> tuple[Monomial, Polynomial | None]:
    """The product of two monomials, and the polynomial that the square of a root in it is equal to, if there is one."""
    powers: dict[Atom, int] = {}
    for a, k in (*m, *n):
        powers[a] = powers.get(a, 0) + k
    for a, k in powers.items():
        if a.kind == "sqrt" and k >= 2 and not a.partial:
            (under,) = a.parts
            assert isinstance(under, Polynomial)
            powers[a] = k - 2
            return frozenset((x, y) for x, y in powers.items() if y), under
    return frozenset(powers.items()), None


def _inverse(q: Normal) -> Normal:
    if isinstance(q, Special):
        return q if q is NAN else _ZERO
    if (c := value_of(q)) is not None:
        if not c:
            raise Unknown
        return number(1 / c)
    if (a := _single(q)) is not None and a.kind == "inverse" and isinstance(a.parts[0], Polynomial):
        return a.parts[0]
    return opaque("inverse", (q,), partial=least_sign(q) != 1, least=least_sign(q))


def _extreme(op: str, p: Normal, q: Normal, t: DType) -> Normal:
    """The least or greatest of a set of values, at most one of which is a number."""
    if NAN in (p, q):
        return NAN
    values: set[Normal] = set()
    for x in (p, q):
        a = _single(x)
        values |= {x} if a is None or a.kind != op else a.values
    neutral, absorbing = (Special.INF, Special.LOW) if op == "min" else (Special.LOW, Special.INF)
    values -= {neutral} if len(values) > 1 else set[Normal]()
    if absorbing in values:
        if is_partial(*(values - {absorbing})):
            raise Unknown
        return absorbing
    numbers = [n for x in values if (n := value_of(x)) is not None]
    values = {x for x in values if value_of(x) is None}
    if numbers:
        values.add(number(min(numbers) if op == "min" else max(numbers)))
    if len(values) == 1:
        return values.pop()
    signs = [least_sign(x) for x in values]
    least = (min(signs) if op == "min" else max(signs)) if t.is_float else -1
    return atom(Atom(op, (), is_partial(*values), least, frozenset(values)))


def _bits(f: str, p: Normal, q: Normal, t: DType) -> Normal:
    """The bits that are in all of a set of values, or in one of them; at most one of them is a number."""
    values = _members(f, p) | _members(f, q)
    ones = -1 if t.kind == "int" else 2**t.bits - 1
    neutral, absorbing = (ones, 0) if f == "bit_and" else (0, ones)
    known = neutral
    for n in map(value_of, values):
        if n is not None:
            known = known & int(n) if f == "bit_and" else known | int(n)
    values = {x for x in values if value_of(x) is None}
    if known == absorbing:
        return number(absorbing)
    if known != neutral or not values:
        values.add(number(known))
    return values.pop() if len(values) == 1 else atom(Atom(f, values=frozenset(values)))


def _exclusive(p: Normal, q: Normal, t: DType) -> Normal:
    """The `xor` of a set of values: those that occur twice vanish, and at most one of them is a number."""
    values = _members("xor", p) ^ _members("xor", q)
    known = 0
    for n in map(value_of, values):
        known ^= 0 if n is None else int(n)
    values = {x for x in values if value_of(x) is None}
    if known or not values:
        values.add(wrapped_polynomial(number(known), t))
    return values.pop() if len(values) == 1 else atom(Atom("xor", values=frozenset(values)))


def _members(kind: str, p: Normal) -> set[Normal]:
    """The values that an atom of the kind joins; another value alone."""
    if isinstance(p, Special):
        raise Unknown
    a = _single(p)
    return {p} if a is None or a.kind != kind else set(a.values)


def _distance(p: Normal, q: Normal, t: DType) -> Normal:
    """The root of the sum of two squares. An infinite number is as far as another one, even if that is NaN."""
    if not {Special.INF, Special.LOW}.isdisjoint((p, q)) or (
        NAN in (p, q) and any(is_partial(x) for x in (p, q) if x is not NAN)
    ):
        raise Unknown
    return NAN if NAN in (p, q) else call("sqrt", (_add(_multiply(p, p), _multiply(q, q)),), t)


def told(f: str, p: Normal) -> Condition:
    """Whether a float is NaN, infinite, or neither."""
    if not isinstance(p, Special):
        return Test(f, (p,))
    return {"isnan": p is NAN, "isinf": p is not NAN, "isfinite": False}[f]


def call(f: str, args: tuple[Normal, ...], t: DType) -> Normal:
    """`f(args)` of arguments of the type. Raises Unknown."""
    p = args[0]
    if f in ("bit_and", "bit_or"):
        return _bits(f, p, args[1], t)
    if not t.is_float:
        return opaque(f, args)
    if f == "hypot":
        return _distance(p, args[1], t)
    known = MATHS[f]
    if known.count == 1:
        if p is NAN:
            return NAN
        if (f, p) in _AT:
            return _AT[f, p]
    if f == "abs" and (c := value_of(p)) is not None:
        return number(abs(c))
    if f == "abs" and least_sign(p) >= 0:
        return p
    inner = _single(p)
    if inner is not None and (f, inner.kind) in (("log", "exp"), ("exp", "log")) and not inner.partial:
        (under,) = inner.parts
        assert isinstance(under, Polynomial)
        return under
    signs = (Domain.NONNEGATIVE, Domain.POSITIVE)
    defined = known.domain is Domain.ALL or (
        known.count == 1 and known.domain in signs and least_sign(p) >= known.domain
    )
    return opaque(f, args, partial=not defined, least=known.least)


# The normal form of an expression, for proofs that two expressions are equal: polynomials over opaque atoms.
#
# Floats are real numbers, so rounding and overflow do not count; integers wrap around. Infinities and NaN are values of
# their own, so that a proof can compute with them.


def normal(e: Expr, given: Mapping[str, Special]) -> Normal | Condition:
    """The normal form of an expression over operands, of which some have the `given` values. Raises Unknown."""
    return _Form(given).of(e)


@frozen
class _Form:
    given: Mapping[str, Special]

    def of(self, e: Expr) -> Normal | Condition:
        match e:
            case Const(value=bool(value)):
                return value
            case Const(value=value, dtype=t):
                return wrapped_polynomial(number(value), t)
            case Load(buffer=name, indices=(), dtype=t):
                if t == BOOL:
                    return Test("operand", (name,))
                return self.given.get(name) or atom(Atom("operand", (name,)))
            case Binary(op=op, lhs=a, rhs=b):
                return binary(op, self.value(a), self.value(b), dtype_of(a))
            case Compare(op=op, lhs=a, rhs=b):
                return _compare(op, self.of(a), self.of(b))
            case Logic(op=op, lhs=a, rhs=b):
                return _logic(op, self.condition(a), self.condition(b))
            case Not(operand=a):
                c = self.condition(a)
                return not c if isinstance(c, bool) else Test("not", (c,))
            case Select(cond=c, then=a, other=b):
                where = self.condition(c)
                return self.of(a if where else b) if isinstance(where, bool) else _select(where, self.of(a), self.of(b))
            case Cast(operand=a, dtype=t):
                x, old = self.value(a), dtype_of(a)
                return x if old == t or (old.is_float and t.is_float) else opaque(f"to {t}", (x,))
            case Call(function=f, args=(a,)) if f in CONDITIONS:
                return told(f, self.value(a))
            case Call(function=f, args=args):
                return call(f, tuple(map(self.value, args)), dtype_of(args[0]))
            case Var() | Dim() | Load() | Bitcast():  # bits are no function of real numbers
                raise Unknown
            case _:
                assert_never(e)

    def value(self, e: Expr) -> Normal:
        x = self.of(e)
        if isinstance(x, bool | Test):
            raise Unknown
        return x

    def condition(self, e: Expr) -> Condition:
        x = self.of(e)
        if not isinstance(x, bool | Test):
            raise Unknown
        return x


# --- conditions ------------------------------------------------------------------------------------------------------


def _compare(op: str, p: Normal | Condition, q: Normal | Condition) -> Condition:
    if isinstance(p, bool | Test) or isinstance(q, bool | Test):
        return Test(op, (p, q))
    if NAN in (p, q):
        return op == "!="
    if op in (">", ">="):
        op, p, q = ("<" if op == ">" else "<="), q, p
    x, y = _place(p, q), _place(q, p)
    if x is not None and y is not None:
        return {"<": x < y, "<=": x <= y, "==": x == y, "!=": x != y}[op]
    if p == q and not is_partial(p):
        return op in ("<=", "==")
    return Test(op, (p, q) if op in ("<", "<=") else (frozenset[Normal | Condition]((p, q)),))


def _place(p: Normal, other: Normal) -> Fraction | float | None:
    """The position of a value relative to another one; relative to an infinity, any number is at 0."""
    if isinstance(p, Special):
        return inf if p is Special.INF else -inf
    c = value_of(p)
    return Fraction(0) if c is None and isinstance(other, Special) and not is_partial(p) else c


def _logic(op: str, a: Condition, b: Condition) -> Condition:
    deciding = op == "or"
    if deciding in (a, b):
        return deciding
    if isinstance(a, bool) or isinstance(b, bool):
        return b if isinstance(a, bool) else a
    return a if a == b else Test(op, (frozenset[Normal | Condition]((a, b)),))


def _select(c: Test, a: Normal | Condition, b: Normal | Condition) -> Normal | Condition:
    if a == b:
        return a
    if isinstance(a, bool | Test) or isinstance(b, bool | Test):
        return Test("if", (c, a, b))
    return atom(Atom("if", (c, a, b), is_partial(a, b), min(least_sign(a), least_sign(b))))
