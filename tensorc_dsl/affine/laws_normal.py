"""The normal form of an expression, for proofs that two expressions are equal: polynomials over opaque atoms.

Floats are real numbers, so rounding and overflow do not count; integers wrap around. Infinities and NaN are values of
their own, so that a proof can compute with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import assert_never

from tensorc_dsl.affine.laws_values import (
    NAN,
    Atom,
    Condition,
    Normal,
    Special,
    Test,
    Unknown,
    atom,
    binary,
    call,
    is_partial,
    least_sign,
    number,
    opaque,
    told,
    value_of,
    wrapped,
)
from tensorc_dsl.ir.dtypes import BOOL
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
    dtype_of,
)
from tensorc_dsl.ir.maths import CONDITIONS


def normal(e: Expr, given: Mapping[str, Special]) -> Normal | Condition:
    """The normal form of an expression over operands, of which some have the `given` values. Raises Unknown."""
    return _Form(given).of(e)


@dataclass(frozen=True, slots=True)
class _Form:
    given: Mapping[str, Special]

    def of(self, e: Expr) -> Normal | Condition:
        match e:
            case Const(value=bool(value)):
                return value
            case Const(value=value, dtype=t):
                return wrapped(number(value), t)
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
