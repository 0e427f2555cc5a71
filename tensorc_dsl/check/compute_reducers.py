"""The reducers of the compute layer: how they combine, and where they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc_dsl.check.compute_problems import NOT_REDUCIBLE, UNSUPPORTED, Invalid
from tensorc_dsl.ir.dtypes import BOOL, DType
from tensorc_dsl.ir.expr import Binary, BinaryOp, Const, Expr, Logic, LogicOp
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
        raise Invalid(NOT_REDUCIBLE(e.body.span, reducer=self.name, wanted=wanted, found=dtype, repair=repair))


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


def reducer(e: tree.Reduce) -> str:
    """The name of the reducer. Raises Invalid for one that is not supported: `argmin`, `argmax`."""
    if e.reducer not in REDUCERS:
        repair = "the reducers are " + ", ".join(f"`{r}`" for r in REDUCERS)
        raise Invalid(UNSUPPORTED(e.span, what=f"`{e.reducer}`", repair=repair))
    return e.reducer


def identity(kind: str, dtype: DType) -> Const:
    """What a reduction starts from."""
    return Const(REDUCERS[kind].identity(dtype), dtype)
