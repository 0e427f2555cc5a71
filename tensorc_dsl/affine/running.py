"""Recognises running reductions: scans whose step combines the value so far, maybe scaled, with one more term.

`Y[t] = first if t < 1 else Y[t - 1] op term` is the reduction of all terms up to `t`, if `op` is associative. In
`Y[t] = first if t < 1 else (Y[t - 1] by factor) op term` each term is scaled by all factors after its own step, if `by`
distributes over `op`: a linear recurrence (Blelloch, Prefix sums and their applications, 1990, section 1.4). Only the form is
looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    dtype_of,
    loads,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import Block, IterKind
from tensorc_dsl.ir.reductions import FoldOp, combine, identity


@dataclass(frozen=True, slots=True)
class Scale:
    """What a step does to the value before: it combines it with `factor` by an operation that distributes over the scan's."""

    op: FoldOp
    factor: Expr


@dataclass(frozen=True, slots=True)
class Running:
    """A scan along the iterator `steps`: `first` at 0, then the value `read` of the step before combined with `term`."""

    op: FoldOp
    steps: str
    first: Expr
    read: Load
    term: Expr
    scale: Scale | None = None
    """What is done to the value before; None if it is taken as it is."""


def distributing(op: FoldOp, t: DType) -> tuple[FoldOp, ...]:
    """The operations that distribute over `op`: x by (y op z) = (x by y) op (x by z).

    Sums of integers wrap around, and then no longer keep an order. Products may turn it round.
    """
    match op:
        case "+":
            return ("*",)
        case "max":
            return ("+", "min") if t.is_float else ("min",)
        case "min":
            return ("+", "max") if t.is_float else ("max",)
        case "and":
            return ("or",)
        case "or":
            return ("and",)
        case "*":
            return ()


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
        case Binary(op="-", lhs=a, rhs=e) if own[0] in loads(a):
            op, step = "+", Binary("+", a, _negative(e))
        case Binary(op="-", lhs=a, rhs=e):
            op, step = "+", Binary("+", _negative(e), a)
        case Binary(op="+" | "*" | "min" | "max" as op) | Logic(op=op):
            pass
        case _:
            return None
    return _of_form(step, op, own[0], v, first)


def _of_form(step: Expr, op: FoldOp, own: Load, v: str, first: Expr) -> Running | None:
    """The running reduction by `op` with that step; None if the value before is not once an operand, scaled or not."""
    before, terms = _beside(step, op, own)
    if not terms:
        return None
    term = reduce(lambda x, y: combine(op, x, y), terms)
    if before == own:
        return Running(op, v, first, own, term)
    for by in distributing(op, dtype_of(own)):
        inner = before
        if by == "+" and isinstance(before, Binary) and before.op == "-" and own not in loads(before.rhs):
            inner = Binary("+", before.lhs, _negative(before.rhs))
        value, factors = _beside(inner, by, own)
        if value == own and factors:
            return Running(op, v, first, own, term, Scale(by, reduce(lambda x, y: combine(by, x, y), factors)))
    return None


def _negative(e: Expr) -> Expr:
    """`0 - e`, as a factor -1 of a product if its type has that number."""
    t = dtype_of(e)
    if t.kind == "uint":
        return Binary("-", identity("+", t), e)
    match e:
        case Const(value=value) if t.is_float:
            return Const(-value, t)
        case Binary(op="*", lhs=a, rhs=b):
            return Binary("*", _negative(a), b)
        case _:
            return Binary("*", Const(-1.0 if t.is_float else -1, t), e)


def _is_before(read: Load, stored: Sequence[Expr], v: str) -> bool:
    """Whether the read is of what the step before has stored."""
    back = {v: sub(Var(v), ONE)}
    return all(simplify(sub(substitute(i, back), j), {}) == ZERO for i, j in zip(stored, read.indices, strict=True))


def _beside(e: Expr, op: str, own: Load) -> tuple[Expr, list[Expr]]:
    """The operand of a chain of the operation that has the load `own`, and the other operands; else `e` alone."""
    match e:
        case Binary(op=o, lhs=a, rhs=b) | Logic(op=o, lhs=a, rhs=b) if o == op:
            for part, other in ((a, b), (b, a)):
                if own not in loads(other):
                    found, others = _beside(part, op, own)
                    return found, [*others, other]
            return e, []
        case _:
            return e, []
