"""Nested minima and maxima, as in rank filters: they are tested for NaN once.

Each propagates NaN, as in NumPy, for which x86 needs a comparison and a choice beside its instruction. The result of an
expression of nothing else is NaN where one of its leaves is, so the leaves are asked, two with each comparison, and one
choice does for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scalars import compare, logic, select
from tensorc_dsl.backend.llvm.codegen.values import Value, constant_value
from tensorc_dsl.ir.dtypes import BOOL
from tensorc_dsl.ir.expr import Binary, Cast, Const, Expr, dtype_of

NEEDS = "avx"
"""The instruction set whose minima do not propagate NaN. Those of AArch64 and of GPUs do."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """The minima and maxima of an expression, each behind its operands, and the leaves that they are of.

    Those in `asked` may be NaN.
    """

    nodes: tuple[Binary, ...]
    leaves: tuple[Expr, ...]
    asked: tuple[Expr, ...]


def extremes(e: Expr) -> Extremes | None:
    """The minima and maxima of f32 or f64 that `e` is made of, if it takes fewer instructions to ask their leaves."""
    if not _is_extreme(e):
        return None
    numbers: dict[Expr, bool] = {}
    _collect(e, numbers)
    nodes = tuple(n for n in numbers if isinstance(n, Binary) and _is_extreme(n))
    leaves = tuple(x for x in numbers if not _is_extreme(x))
    asked = tuple(x for x in leaves if not numbers[x])
    apart = sum(1 if numbers[n.lhs] or numbers[n.rhs] else 3 for n in nodes)
    once = len(nodes) + (len(asked) + 1) // 2 + bool(asked)
    return Extremes(nodes, leaves, asked) if once < apart else None


def _is_extreme(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("min", "max") and dtype_of(e).name in ("f32", "f64")


def _collect(e: Expr, numbers: dict[Expr, bool]) -> None:
    """Add the minima and maxima, each behind its operands, and the leaves, with whether each is known not to be NaN."""
    if e in numbers:
        return
    if isinstance(e, Binary) and _is_extreme(e):
        _collect(e.lhs, numbers)
        _collect(e.rhs, numbers)
        numbers[e] = numbers[e.lhs] and numbers[e.rhs]
    else:
        numbers[e] = _is_number(e)


def _is_number(e: Expr) -> bool:
    """Whether the value of a leaf is known not to be NaN: a constant, or one that was an integer."""
    match e:
        case Const(value=value):
            return value == value
        case Cast(operand=x):
            return not dtype_of(x).is_float
        case _:
            return False


def extreme(f: Function, found: Extremes, leaves: Mapping[Expr, Value]) -> Value:
    """The value of the last of the nodes. The values of its leaves have equal numbers of lanes."""
    values = dict(leaves)
    for n in found.nodes:
        a, b = values[n.lhs], values[n.rhs]
        # One instruction: of two values that do not compare it gives the second.
        values[n] = select(f, compare(f, "<" if n.op == "min" else ">", a, b), a, b)
    last = values[found.nodes[-1]]
    asked = [values[x] for x in found.asked]
    if not asked:
        return last
    pairs = zip(asked[::2], [*asked[1::2], asked[-1]], strict=False)
    numbers = [f.value(BOOL, f"fcmp ord {a.type} {a.ref}, {b.ref}", a.lanes) for a, b in pairs]
    return select(f, reduce(lambda x, y: logic(f, "and", x, y), numbers), last, _nan(last))


def _nan(like: Value) -> Value:
    return constant_value(like.dtype, float("nan"), like.lanes)
