"""Recognises running reductions: scans whose step combines the value so far with one more term.

`Y[t] = first if t < 1 else Y[t - 1] op term` is the reduction of all terms up to `t`, if `op` is associative. Only the form
is looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.ir.expr import ONE, ZERO, Binary, Compare, Expr, Load, Logic, Select, Var, loads, sub, substitute
from tensorc_dsl.ir.program import Block, IterKind
from tensorc_dsl.ir.reductions import FoldOp, combine


@dataclass(frozen=True, slots=True)
class Running:
    """A scan along the iterator `steps`: `first` at 0, then the value `read` of the step before combined with `term`."""

    op: FoldOp
    steps: str
    first: Expr
    read: Load
    term: Expr


def running(b: Block) -> Running | None:
    """The running reduction that a block computes; None for others."""
    steps = [it.name for it in b.iters if it.kind is IterKind.SCAN]
    if len(steps) != 1 or len(b.body) != 1 or b.init or b.is_reduction:
        return None
    (v,), (store,) = steps, b.body
    match store.value:
        case Select(cond=Compare(op="<", lhs=Var(name=name), rhs=limit), then=first, other=step) if (
            name == v and limit == ONE
        ):
            pass
        case _:
            return None
    own = [x for x in loads(store.value) if x.buffer == store.buffer]
    inside = [x for i in store.indices for x in loads(i)]
    if len(own) != 1 or inside or own[0] in loads(first) or not _is_before(own[0], store.indices, v):
        return None
    match step:
        case Binary(op="+" | "*" | "min" | "max" as op) | Logic(op=op):
            others = _others(step, op, own[0])
            return Running(op, v, first, own[0], reduce(lambda x, y: combine(op, x, y), others)) if others else None
        case _:
            return None


def _is_before(read: Load, stored: Sequence[Expr], v: str) -> bool:
    """Whether the read is of what the step before has stored."""
    back = {v: sub(Var(v), ONE)}
    return all(simplify(sub(substitute(i, back), j), {}) == ZERO for i, j in zip(stored, read.indices, strict=True))


def _others(e: Expr, op: str, own: Load) -> list[Expr]:
    """The operands beside the load `own`, if that is an operand of one chain of the operation; else none."""
    match e:
        case Binary(op=o, lhs=a, rhs=b) | Logic(op=o, lhs=a, rhs=b) if o == op:
            for part, other in ((a, b), (b, a)):
                if own not in loads(other):
                    if part == own:
                        return [other]
                    if found := _others(part, op, own):
                        return [*found, other]
            return []
        case _:
            return []
