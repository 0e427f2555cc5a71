"""Recognises corrected sums: scans whose step multiplies the value before by a factor and adds a part.

`Y[t] = first if t < 1 else Y[t - 1] * factor + part`. Only the form is looked at here; the validator asks for the laws.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.ir.expr import ONE, Binary, Compare, Expr, Load, Select, Var, dtype_of, loads
from tensorc_dsl.ir.program import Block, IterKind


@dataclass(frozen=True, slots=True)
class Correcting:
    """A scan along the iterator `steps`: `first` at 0, then the value `read` of the step before, times `factor`, plus
    `part`."""

    steps: str
    first: Expr
    read: Load
    factor: Expr
    part: Expr


def correcting(b: Block) -> Correcting | None:
    """The corrected sum that a block computes; None for others."""
    steps = [it.name for it in b.iters if it.kind is IterKind.SCAN]
    if len(steps) != 1 or len(b.body) != 1 or b.init or b.is_reduction:
        return None
    (v,), (store,) = steps, b.body
    match store.value:
        case Select(
            cond=Compare(op="<", lhs=Var(name=name), rhs=limit), then=first, other=Binary(op="+", lhs=left, rhs=right)
        ) if name == v and limit == ONE:
            pass
        case _:
            return None
    if not dtype_of(first).is_float or store.buffer in _buffers(first):
        return None
    for moved, part in ((left, right), (right, left)):
        if isinstance(moved, Binary) and moved.op == "*" and store.buffer not in _buffers(part):
            for read, factor in ((moved.lhs, moved.rhs), (moved.rhs, moved.lhs)):
                if isinstance(read, Load) and read.buffer == store.buffer and store.buffer not in _buffers(factor):
                    return Correcting(v, first, read, factor, part)
    return None


def _buffers(e: Expr) -> set[str]:
    return {x.buffer for x in loads(e)}
