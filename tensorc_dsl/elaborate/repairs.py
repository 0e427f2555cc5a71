"""Repairs as text: what a file says with a conversion or a comparison around it, in the parentheses that it needs there."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.ir.dtypes import BOOL, F32, I32, I64, INDEX, U64, DType
from tensorc_dsl.ir.maths import Takes
from tensorc_dsl.ir.numbers import largest_finite, limits
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format_expr import expr


def of_one_type(op: str, a: tree.Expr, s: DType, b: tree.Expr, t: DType, at: tree.Expr) -> str:
    """`a op b` with operands of types `s` and `t`: the index, the bool or the narrower one is converted to the other type.

    A bool and an index meet as i32.
    """
    if {s, t} == {BOOL, INDEX}:
        return expr(_operation(op, _cast(a, I32), _cast(b, I32), at))
    first = s in (INDEX, BOOL) or (t not in (INDEX, BOOL) and (s.is_float, s.bits) < (t.is_float, t.bits))
    return expr(_operation(op, _cast(a, t) if first else a, b if first else _cast(b, s), at))


def of_kind(name: str, kind: Takes, args: Sequence[tree.Expr], at: tree.Expr) -> str:
    """A call with the arguments as i32 or f32; a literal has the type of the others."""
    t = I32 if kind is Takes.INTEGERS else F32
    return expr(_call(name, [a if isinstance(a, tree.Number) else _cast(a, t) for a in args], at))


def not_zero(e: tree.Expr) -> str:
    """`e != 0`."""
    return expr(tree.CompareExpr(("!=",), (e, tree.Number(0, e.span)), e.span))


def held(t: DType, value: int | float) -> tuple[str, str]:
    """The numbers that a type holds, and a type that holds a value that this one does not."""
    if t.is_float:
        return f"numbers up to {largest_finite(t):g}", "f64" if t == F32 or abs(value) > largest_finite(F32) else "f32"
    if t == BOOL:
        return "true and false", "i32"
    low, high = limits(t)
    wider = next((s for s in (I32, I64) if limits(s)[0] <= value <= limits(s)[1]), U64)
    return f"whole numbers from {low} to {high}", "f32" if isinstance(value, float) else str(wider)


def _operation(op: str, a: tree.Expr, b: tree.Expr, at: tree.Expr) -> tree.Expr:
    match op:
        case "+" | "-" | "*" | "/" | "%":
            return tree.BinaryExpr(op, a, b, at.span)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return tree.CompareExpr((op,), (a, b), at.span)
        case name:
            return _call(name, [a, b], at)


def _cast(e: tree.Expr, to: DType) -> tree.Expr:
    return _call(str(to), [e], e)


def _call(name: str, args: Sequence[tree.Expr], at: tree.Expr) -> tree.Expr:
    return tree.CallExpr(tree.Name(name, at.span), tuple(args), (), at.span)
