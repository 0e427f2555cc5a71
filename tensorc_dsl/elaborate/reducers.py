"""The built-in reducers: their operations and identities. `elaborate.user_reducers` has those that a file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorc_dsl.elaborate.problems import (
    NARROW_POSITION,
    NOT_REDUCIBLE,
    NOTHING_TO_PICK,
    STORED_ONLY,
    Invalid,
)
from tensorc_dsl.ir.dtypes import BOOL, I64, INDEX, DType, limits
from tensorc_dsl.ir.expr import ZERO, Const, Expr, Var, add, constant, mul
from tensorc_dsl.ir.reductions import ArgKind, FoldOp, combine, identity
from tensorc_dsl.proof.sets.simplify import bounds
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Reducer:
    """The reducer `accumulator op value`, with the identity of `op`."""

    name: str
    op: FoldOp

    def combine(self, a: Expr, b: Expr) -> Expr:
        return combine(self.op, a, b)

    def identity(self, dtype: DType) -> Const:
        """The initial value of a reduction."""
        return identity(self.op, dtype)

    @property
    def on_bool(self) -> bool:
        """Whether it combines conditions instead of numbers."""
        return self.op in ("and", "or")

    def check(self, e: tree.Reduce, dtype: DType) -> None:
        """Raise Invalid unless this reducer accepts the type."""
        if not dtype.has_arithmetic:
            raise Invalid(STORED_ONLY(e.body.span, op=e.reducer, dtype=dtype))
        if (dtype == BOOL) == self.on_bool:
            return
        wanted = "conditions" if self.on_bool else "numbers"
        text = e.body.span.text
        repair = f"compare: `{text} != 0`" if self.on_bool else f"convert: `i32({text})`"
        raise Invalid(NOT_REDUCIBLE(e.body.span, reducer=e.reducer, wanted=wanted, found=dtype, repair=repair))


REDUCERS: dict[str, Reducer] = {
    r.name: r
    for r in (
        Reducer("sum", "+"),
        Reducer("prod", "*"),
        Reducer("min", "min"),
        Reducer("max", "max"),
        Reducer("any", "or"),
        Reducer("all", "and"),
    )
}


ARG_REDUCERS: tuple[ArgKind, ...] = ("argmin", "argmax")


def position_type(e: tree.Reduce, want: DType | None, over: Mapping[str, Expr]) -> DType:
    """The type of the positions of `argmin` and `argmax`: the integer type `want` if given, else i64. Raises Invalid."""
    t = want if want is not None and want.is_integer and want != INDEX else I64
    for name, extent in over.items():
        if constant(extent) == 0:
            raise Invalid(NOTHING_TO_PICK(e.span, reducer=e.reducer, index=name))
    count = bounds(flat(over)[1], {})[1]
    # The highest number of the type is the initial position, so it cannot be a position.
    room = limits(t)[1]
    if count is not None and count > room:
        raise Invalid(NARROW_POSITION(e.span, count=count, dtype=t, room=room))
    return t


def flat(over: Mapping[str, Expr]) -> tuple[Expr, Expr]:
    """The position of the indices, counted row by row, and the number of positions."""
    at: Expr = ZERO
    count: Expr = Const(1, INDEX)
    for n, extent in over.items():
        at, count = add(mul(at, extent), Var(str(n))), mul(count, extent)
    return at, count
