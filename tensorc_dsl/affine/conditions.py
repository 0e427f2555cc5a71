"""Conditions: the two constants, and `and`, `or` and `not` of conditions without parts that decide nothing."""

from __future__ import annotations

from tensorc_dsl.ir.dtypes import BOOL, INDEX
from tensorc_dsl.ir.expr import Compare, CompareOp, Const, Expr, Logic, Not, dtype_of

TRUE = Const(True, BOOL)
FALSE = Const(False, BOOL)

_NEGATED: dict[CompareOp, CompareOp] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def logic(both: bool, a: Expr, b: Expr) -> Expr:
    """`a and b` if `both`, else `a or b`, without operands that decide nothing."""
    unit, zero = (TRUE, FALSE) if both else (FALSE, TRUE)
    if zero in (a, b):
        return zero
    if a in (unit, b):
        return b
    return a if b == unit else Logic("and" if both else "or", a, b)


def negate(cond: Expr) -> Expr:
    """The opposite condition, with `not` pushed inwards."""
    match cond:
        case Const(value=value):
            return FALSE if value else TRUE
        case Compare(op=op, lhs=a, rhs=b) if dtype_of(a) == INDEX:
            return Compare(_NEGATED[op], a, b)
        case Logic(op=op, lhs=a, rhs=b):
            return Logic("or" if op == "and" else "and", negate(a), negate(b))
        case Not(operand=a):
            return a
        case _:
            return Not(cond)
