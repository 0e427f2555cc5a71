"""Compares two piecewise affine expressions exactly, with integer sets.

A float is a real number: an operand is `x / d` for integers `x` and `d >= 1`, which turns every question about
rational numbers into one about integers. Integers wrap around. A value that is NaN is undefined there.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, assert_never

from tensorc_dsl.affine.budget import Exhausted, bounded
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType
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
from tensorc_dsl.ir.numbers import highest, lowest


class NotPieces(Exception):
    """The expressions are not piecewise affine, or take too many operations."""


def difference(
    a: Expr, b: Expr, operands: Sequence[str], t: DType, undefined: Sequence[str] = ()
) -> tuple[Fraction, ...] | None:
    """Values of the operands, which have type `t`, for which the two expressions differ; None if they are equal.

    The `undefined` operands are NaN. Raises NotPieces if the question cannot be decided.
    """
    if t == BOOL:
        raise NotPieces
    from islpy import Error

    try:
        with bounded():
            return _Pieces(operands, t, undefined).difference(a, b)
    except (Exhausted, Error) as e:
        raise NotPieces from e


class _Pieces:
    """Values as piecewise affine functions of the operands; conditions as sets."""

    def __init__(self, operands: Sequence[str], t: DType, undefined: Sequence[str]) -> None:
        import islpy

        self.isl: Any = islpy
        self.operands = tuple(operands)
        self.t = t
        self.undefined = frozenset(undefined)
        names = [*operands, *(["d"] if t.is_float else [])]
        where = "d >= 1" if t.is_float else " and ".join(f"{lowest(t)} <= {n} <= {highest(t)}" for n in names)
        self.all = islpy.Set(f"{{ [{', '.join(names)}] : {where} }}")
        self.local = islpy.LocalSpace.from_space(self.all.get_space())

    def difference(self, a: Expr, b: Expr) -> tuple[Fraction, ...] | None:
        x, y = self.value(a), self.value(b)
        defined = x.domain().subtract(y.domain()).union(y.domain().subtract(x.domain()))
        apart = x.ne_set(y).union(defined)
        if apart.is_empty():
            return None
        point = apart.sample_point()
        kind = self.isl.dim_type.set
        at = [int(str(point.get_coordinate_val(kind, k))) for k in range(self.all.dim(kind))]
        return tuple(Fraction(v, at[-1]) for v in at[:-1]) if self.t.is_float else tuple(map(Fraction, at))

    def constant(self, value: Fraction, t: DType) -> Any:
        isl = self.isl
        number = isl.Val(f"{value.numerator}/{value.denominator}")
        if t.is_float:
            return isl.PwAff.var_on_domain(self.local, isl.dim_type.set, len(self.operands)).scale_val(number)
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(self.local, number))

    def value(self, e: Expr) -> Any:
        match e:
            case Const(value=value, dtype=t) if not isinstance(value, bool) and isfinite(value):
                return self.constant(Fraction(value), t).intersect_domain(self.all)
            case Load(buffer=name, indices=()):
                at = self.operands.index(name)
                known = self.all.subtract(self.all) if name in self.undefined else self.all
                return self.isl.PwAff.var_on_domain(self.local, self.isl.dim_type.set, at).intersect_domain(known)
            case Binary(op=op, lhs=a, rhs=b):
                return self.binary(op, a, b, dtype_of(a))
            case Select(cond=c, then=a, other=b):
                where = self.condition(c)
                then = self.value(a).intersect_domain(where)
                return then.union_add(self.value(b).intersect_domain(self.all.subtract(where))).coalesce()
            case Call(function="abs", args=(a,)):
                x = self.value(a)
                return self.near(x.max(x.neg()), dtype_of(a))
            case Cast(operand=a, dtype=t):
                old = dtype_of(a)
                if old.is_float and t.is_float:
                    return self.value(a)
                if old.is_integer and t.is_integer and INDEX not in (old, t):
                    return self.wrapped(self.value(a), t)
                raise NotPieces
            case Const() | Load() | Call() | Bitcast() | Var() | Dim() | Compare() | Logic() | Not():
                raise NotPieces
            case _:
                assert_never(e)

    def binary(self, op: BinaryOp, a: Expr, b: Expr, t: DType) -> Any:
        if t == INDEX:
            raise NotPieces
        match op:
            case "+":
                return self.near(self.value(a).add(self.value(b)), t)
            case "-":
                return self.near(self.value(a).sub(self.value(b)), t)
            case "min":
                return self.value(a).min(self.value(b)).coalesce()
            case "max":
                return self.value(a).max(self.value(b)).coalesce()
            case "*":
                factor, other = (a, b) if isinstance(a, Const) else (b, a)
                return self.wrapped(self.value(other).scale_val(self.number(factor)), t)
            case "/" if t.is_float:
                return self.value(a).scale_down_val(self.number(b))
            case "/":
                return self.wrapped(self.value(a).scale_down_val(self.number(b)).floor(), t)
            case "%" if t.is_integer:
                x, d = self.value(a), self.number(b)
                return x.sub(x.scale_down_val(d).floor().scale_val(d))
            case "%" | "xor":
                raise NotPieces
            case _:
                assert_never(op)

    def number(self, e: Expr) -> Any:
        """A factor or a divisor: a nonzero number."""
        if not isinstance(e, Const) or not e.value or not isfinite(e.value):
            raise NotPieces
        value = Fraction(e.value)
        return self.isl.Val(f"{value.numerator}/{value.denominator}")

    def near(self, x: Any, t: DType) -> Any:
        """A value wrapped around, if it is at most one turn outside of its type."""
        if not t.is_integer:
            return x
        turn, low, high = 2**t.bits, int(lowest(t)), int(highest(t))
        out = x
        for where, shift in (
            (x.gt_set(self.constant(Fraction(high), t).intersect_domain(self.all)), -turn),
            (x.lt_set(self.constant(Fraction(low), t).intersect_domain(self.all)), turn),
        ):
            if not where.is_empty():
                shifted = x.add(self.constant(Fraction(shift), t)).intersect_domain(where)
                out = out.subtract_domain(where).union_add(shifted)
        return out

    def wrapped(self, x: Any, t: DType) -> Any:
        """A value wrapped around."""
        if not t.is_integer:
            return x
        low, turn = self.constant(Fraction(lowest(t)), t), self.isl.Val(str(2**t.bits))
        turns = x.sub(low).scale_down_val(turn).floor()
        return x.sub(turns.scale_val(turn))

    def condition(self, e: Expr) -> Any:
        match e:
            case Const(value=bool(value)):
                return self.all if value else self.all.subtract(self.all)
            case Not(operand=a):
                return self.all.subtract(self.condition(a))
            case Logic(op=op, lhs=a, rhs=b):
                x, y = self.condition(a), self.condition(b)
                return x.intersect(y) if op == "and" else x.union(y)
            case Compare(op=op, lhs=a, rhs=b) if dtype_of(a) not in (BOOL, INDEX):
                x, y = self.value(a), self.value(b)
                if op == "!=":  # true for a NaN, too
                    return self.all.subtract(x.eq_set(y))
                asked = {"<": x.lt_set, "<=": x.le_set, ">": x.gt_set, ">=": x.ge_set, "==": x.eq_set}
                return asked[op](y)
            case Select(cond=c, then=a, other=b):
                where = self.condition(c)
                then = self.condition(a).intersect(where)
                return then.union(self.condition(b).subtract(where))
            case _:
                raise NotPieces
