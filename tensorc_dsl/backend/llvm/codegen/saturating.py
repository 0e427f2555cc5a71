"""Finds sums and differences that saturate, for which vectors have an instruction.

`saturate(u8, u16(a) + u16(b))` computes in 16 bits, compares with 255 and goes back to bytes. `vpaddusb` does the same in
bytes, and LLVM does not find it.
"""

from __future__ import annotations

import math

from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Binary, Cast, Const, Expr, dtype_of
from tensorc_dsl.ir.numbers import limits


def saturating(e: Cast) -> tuple[str, Expr, Expr] | None:
    """LLVM's intrinsic that makes `e` of two values of its type, with their expressions; None if there is none."""
    t = e.dtype
    if not t.is_integer or not dtype_of(e.operand).is_integer:
        return None
    core, low, high = _between(e.operand)
    if not isinstance(core, Binary) or core.op not in ("+", "-"):
        return None
    a, b = _narrow(core.lhs, t), _narrow(core.rhs, t)
    least, most = limits(t)
    first, last = (2 * least, 2 * most) if core.op == "+" else (least - most, most - least)
    bottom, top = limits(dtype_of(core))
    if a is None or b is None or first < bottom or top < last:  # the sum in the wider type may wrap around
        return None
    if max(low, first) != max(least, first) or min(high, last) != min(most, last):  # it is limited to something else
        return None
    return f"{'u' if t.kind == 'uint' else 's'}{'add' if core.op == '+' else 'sub'}.sat", a, b


def _between(e: Expr) -> tuple[Expr, float, float]:
    """What is limited by constants, and the constants."""
    match e:
        case Binary(op="max", lhs=inner, rhs=Const(value=end)) | Binary(op="max", lhs=Const(value=end), rhs=inner):
            core, low, high = _between(inner)
            return core, max(low, end), high
        case Binary(op="min", lhs=inner, rhs=Const(value=end)) | Binary(op="min", lhs=Const(value=end), rhs=inner):
            core, low, high = _between(inner)
            return core, low, min(high, end)
        case _:
            return e, -math.inf, math.inf


def _narrow(e: Expr, t: DType) -> Expr | None:
    """The expression in type `t` that is converted to a wider one."""
    match e:
        case Cast(operand=x) if dtype_of(x) == t:
            return x
        case Const(value=n) if limits(t)[0] <= n <= limits(t)[1]:
            return Const(int(n), t)
        case _:
            return None
