"""The built-in reducers: how they combine, and where they start. What a file declares is in `compute_declared`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensorc_dsl.affine.simplify import bounds
from tensorc_dsl.check.compute_problems import (
    NARROW_POSITION,
    NOT_REDUCIBLE,
    NOTHING_TO_PICK,
    Invalid,
)
from tensorc_dsl.ir.dtypes import BOOL, I64, INDEX, DType
from tensorc_dsl.ir.expr import ZERO, Binary, BinaryOp, Cast, Const, Expr, Logic, LogicOp, Var, add, constant, mul
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.reductions import ArgKind, arg_start, arg_stores
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Reducer:
    """`combine(accumulator, value)`, starting from `identity(dtype)`."""

    name: str
    combine: Callable[[Expr, Expr], Expr]
    identity: Callable[[DType], int | float | bool]
    on_bool: bool = False

    def check(self, e: tree.Reduce, dtype: DType) -> None:
        """Raise Invalid unless this reducer works on that type."""
        if (dtype == BOOL) == self.on_bool:
            return
        wanted = "conditions" if self.on_bool else "numbers"
        text = e.body.span.text
        repair = f"compare: `{text} != 0`" if self.on_bool else f"convert: `i32({text})`"
        raise Invalid(NOT_REDUCIBLE(e.body.span, reducer=e.reducer, wanted=wanted, found=dtype, repair=repair))


def _binary(op: BinaryOp) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: Binary(op, a, b)


def _logic(op: LogicOp) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: Logic(op, a, b)


def _number(value: int) -> Callable[[DType], int | float]:
    return lambda t: float(value) if t.is_float else value


def lowest(t: DType) -> int | float:
    """What every value of the type is at least."""
    if t.is_float:
        return float("-inf")
    return -(2 ** (t.bits - 1)) if t.kind == "int" else 0


def highest(t: DType) -> int | float:
    """What every value of the type is at most."""
    if t.is_float:
        return float("inf")
    return 2 ** (t.bits - 1) - 1 if t.kind == "int" else 2**t.bits - 1


REDUCERS: dict[str, Reducer] = {
    r.name: r
    for r in (
        Reducer("sum", _binary("+"), _number(0)),
        Reducer("prod", _binary("*"), _number(1)),
        Reducer("min", _binary("min"), highest),
        Reducer("max", _binary("max"), lowest),
        Reducer("any", _logic("or"), lambda _: False, on_bool=True),
        Reducer("all", _logic("and"), lambda _: True, on_bool=True),
    )
}


def identity(kind: str, dtype: DType) -> Const:
    """What a reduction starts from."""
    return Const(REDUCERS[kind].identity(dtype), dtype)


@dataclass(frozen=True, slots=True)
class ArgReducer:
    """`argmin` or `argmax`: the position of the best value, of several reduced indices counted row by row.

    The lowest position among equals; that of the first NaN where there is one, as in NumPy.
    """

    kind: ArgKind
    position: DType

    def stores(
        self, index: str, best: str, at: tuple[Expr, ...], value: Expr, where: Expr, dtype: DType
    ) -> tuple[tuple[Store, ...], tuple[Store, ...]]:
        """The stores of a step, and those that the reduction starts with."""
        worst = Const(lowest(dtype) if self.kind == "argmax" else highest(dtype), dtype)
        steps = arg_stores(self.kind, index, best, at, value, Cast(where, self.position))
        return steps, arg_start(index, best, at, worst, self.position)


ARG_REDUCERS: tuple[ArgKind, ...] = ("argmin", "argmax")


def arg_reducer(e: tree.Reduce, kind: ArgKind, want: DType | None, over: Mapping[str, Expr]) -> ArgReducer:
    """The reducer of `e`; its positions have the integer type that is wanted, else i64. Raises Invalid."""
    t = want if want is not None and want.is_integer and want != INDEX else I64
    for name, extent in over.items():
        if constant(extent) == 0:
            raise Invalid(NOTHING_TO_PICK(e.span, reducer=kind, index=name))
    count = bounds(flat(over, {n: n for n in over})[1], {})[1]
    # The highest number of the type is taken: a reduction starts from it.
    if count is not None and count > highest(t):
        raise Invalid(NARROW_POSITION(e.span, last=count - 1, dtype=t, count=count))
    return ArgReducer(kind, t)


def flat(over: Mapping[str, Expr], names: Mapping[str, str]) -> tuple[Expr, Expr]:
    """Which place, counted row by row, the indices are at under their `names`, and how many places there are."""
    at: Expr = ZERO
    count: Expr = Const(1, INDEX)
    for n, extent in over.items():
        at, count = add(mul(at, extent), Var(names[n])), mul(count, extent)
    return at, count
