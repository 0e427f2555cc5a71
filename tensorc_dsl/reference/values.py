"""Evaluates expressions over whole boxes of block instances, with NumPy in float64, int64, uint64 and bool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, assert_never

import numpy as np

from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, wide_dtype, widen, wrap
from tensorc_dsl.ir.dtypes import F64, DType
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
    index,
)
from tensorc_dsl.ir.numbers import holds, limits, nearest
from tensorc_dsl.reference.alive import Alive
from tensorc_dsl.reference.boxes import Box, gather, view
from tensorc_dsl.reference.cases import truth
from tensorc_dsl.reference.maths import called

T = TypeVar("T")


class EvaluateError(ValueError):
    """The program is scheduled, reads out of bounds, or was given arrays that do not fit its parameters."""


_ARITHMETIC: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "%": np.mod, "min": np.minimum, "max": np.maximum,
    "xor": np.bitwise_xor,
}  # fmt: skip

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


class Values:
    """Evaluates expressions over the buffers in `arrays`. `block` is the block that they belong to, for messages.

    Of those in `alive` only some steps are kept.
    """

    def __init__(self, block: str, arrays: dict[str, Array], alive: Mapping[str, Alive] | None = None) -> None:
        self.block_name = block
        self.arrays = arrays
        self.alive = alive or {}

    def value(self, e: Expr, box: Box, mask: Array | None) -> Array:
        """The values of `e` over the box; arbitrary where `mask` is false."""
        match e:
            case Const(value=value, dtype=t):
                return np.full((1,) * len(box.size), nearest(value, t) if t.is_float else value, wide_dtype(t))
            case Var(name=name):
                axis = box.names.index(name)
                shape = [box.size[a] if a == axis else 1 for a in range(len(box.size))]
                return np.arange(box.start[axis], box.start[axis] + box.size[axis], dtype=np.int64).reshape(shape)
            case Dim(name=name):
                raise EvaluateError(f"the dimension {name} is open: `ir.bind.bind` gives it a size")
            case Binary(op=op, lhs=a, rhs=b):
                return arithmetic(op, self.value(a, box, mask), self.value(b, box, mask), dtype_of(a))
            case Compare(op=op, lhs=a, rhs=b):
                return _COMPARE[op](self.value(a, box, mask), self.value(b, box, mask))
            case Logic(op=op, lhs=a, rhs=b):
                x, y = self.value(a, box, mask), self.value(b, box, mask)
                return x & y if op == "and" else x | y
            case Not(operand=a):
                return ~self.value(a, box, mask)
            case Select():
                return self.choice(e, box, mask, lambda branch, part: self.value(branch, box, part), np.where)
            case Cast(operand=a, dtype=t):
                return cast(self.value(a, box, mask), dtype_of(a), t)
            case Bitcast(operand=a, dtype=t):
                return bits_as(self.value(a, box, mask), dtype_of(a), t)
            case Call(function=f, args=args):
                return wrap(called(f, dtype_of(args[0]), *(self.value(a, box, mask) for a in args)), dtype_of(e))
            case Load(buffer=name, indices=indices):
                return self.load(self.arrays, name, indices, box, mask)
            case _:
                assert_never(e)

    def choice(
        self,
        e: Select,
        box: Box,
        mask: Array | None,
        of: Callable[[Expr, Array | None], T],
        merge: Callable[[Array, T, T], T],
    ) -> T:
        """What `of` has for the branches of a choice, each under the mask of where it is taken, merged by the condition.

        A branch that is taken nowhere is not evaluated.
        """
        decided = truth(e.cond, box)
        if decided is not None:
            return of(e.then if decided else e.other, mask)
        cond = self.value(e.cond, box, mask)
        yes, no = (cond, ~cond) if mask is None else (mask & cond, mask & ~cond)
        if not no.any():
            return of(e.then, mask)
        if not yes.any():
            return of(e.other, mask)
        return merge(cond, of(e.then, yes), of(e.other, no))

    def load(
        self, arrays: Mapping[str, Array], name: str, indices: tuple[Expr, ...], box: Box, mask: Array | None
    ) -> Array:
        """The elements that an access reads over the box. Raises EvaluateError if one selected by `mask` is out of bounds."""
        if name not in arrays:
            raise EvaluateError(f"block {self.block_name} reads {name} before anything is stored in it")
        if name in self.alive:
            axis, place = self.alive[name].axis, self.alive[name].place(indices, box)
            if place is None and (mask is None or mask.any()):
                raise EvaluateError(f"block {self.block_name} reads outside {name}")
            indices = (*indices[:axis], index(place or 0), *indices[axis + 1 :])
        seen = view(arrays[name], indices, box)
        if seen is not None:
            return seen
        positions = [self.value(i, box, mask) for i in indices]
        values, outside = gather(arrays[name], positions, mask)
        if outside:
            raise EvaluateError(f"block {self.block_name} reads outside {name}")
        return values


def arithmetic(op: BinaryOp, x: Array, y: Array, t: DType) -> Array:
    """One operation on wide values of type `t`."""
    if op == "/":
        return np.divide(x, y) if t.is_float else wrap(np.floor_divide(x, y), t)
    return wrap(_ARITHMETIC[op](x, y), t)


def bits_as(x: Array, old: DType, new: DType) -> Array:
    """The bits of wide values of a type as those of another one of its width."""
    return widen(narrow(x, old).view(stored_dtype(new)), new)


def cast(x: Array, old: DType, new: DType) -> Array:
    """A conversion of wide values, with the rules of `ir.numbers`."""
    if new.kind == "bool":
        return x != 0
    if new.is_float:
        return x.astype(np.float64) if holds(new, old) or new == F64 else widen(narrow(x, new), new)
    if not old.is_float:
        return wrap(x.astype(np.int64) if old.kind == "bool" else x, new)
    low, high = limits(new)
    # The ends of the range are handled separately: float64 cannot represent 2**63 - 1.
    wide = wide_dtype(new).type
    inside = np.where((x > low) & (x < high), x, 0.0).astype(wide)
    return np.where(x <= low, wide(low), np.where(x >= high, wide(high), inside))
