"""Values of index expressions in many threads at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.ir.expr import Binary, Cast, Compare, Const, Dim, Expr, Logic, Not, Select, Var
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import LowerError

Numbers = NDArray[np.int64]

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.floor_divide, "%": np.mod, "min": np.minimum,
    "max": np.maximum, "xor": np.bitwise_xor, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def evaluate(e: Expr, values: Mapping[str, Numbers]) -> Numbers:
    """The value of an expression for each value of its variables, which have one shape; booleans are 0 and 1.

    Raises LowerError if it depends on anything else, such as data.
    """
    match e:
        case Var(name=name) | Dim(name=name) if name in values:
            return values[name]
        case Const(value=int(value)):
            return np.full_like(next(iter(values.values())), value)
        case Binary(op=op, lhs=a, rhs=b) | Compare(op=op, lhs=a, rhs=b) | Logic(op=op, lhs=a, rhs=b) if op in _BINARY:
            return _BINARY[op](evaluate(a, values), evaluate(b, values)).astype(np.int64)
        case Not(operand=a):
            return 1 - evaluate(a, values)
        case Select(cond=c, then=a, other=b):
            return np.where(evaluate(c, values) != 0, evaluate(a, values), evaluate(b, values))
        case Cast(operand=a, dtype=t) if not t.is_float:
            return evaluate(a, values)
        case _:
            raise LowerError(f"which elements a thread owns is not known: they depend on `{format_expr(e)}`")
