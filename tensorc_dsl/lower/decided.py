"""Replaces conditions that are known to hold by what they decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tensorc_dsl.ir.expr import (
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    dtype_of,
    transform,
)
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.reductions import combine, fold_of
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Shuffle,
)
from tensorc_dsl.proof.sets.linear_forms import FALSE, TRUE, logic, negate


def decided(body: tuple[Flat, ...], facts: Iterable[Expr]) -> tuple[Flat, ...]:
    """The body with conditions that are known to hold, and what they decide."""
    known: dict[Expr, Const] = {}
    for c in facts:
        known[c] = TRUE
        known[negate(c)] = FALSE

    def new(e: Expr) -> Expr:
        if (value := known.get(e)) is not None:
            return value
        match e:
            case Logic(op=op, lhs=a, rhs=b):
                return logic(op == "and", a, b)
            case Not(operand=Const(value=value)):
                return FALSE if value else TRUE
            case Select(cond=Const(value=value), then=a, other=b):
                return a if value else b
            case _:
                return e

    return _replaced(body, lambda e: transform(e, new)) if known else body


def _replaced(body: tuple[Flat, ...], new: Callable[[Expr], Expr]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                fold = fold_of(s)
                old = Load(s.buffer, s.indices, dtype_of(s.value))
                # `S[i] or true` stays a fold, which an atomic update is.
                value = new(s.value) if fold is None else combine(fold.op, old, new(fold.value))
                out.append(replace(s, value=value))
                continue
            case If():
                s = replace(s, cond=new(s.cond))
                if s.cond == TRUE:
                    out.extend(_replaced(s.body, new))
                    continue
            case Loop():
                s = replace(s, begin=new(s.begin), end=new(s.end))
            case Parallel() | Alloc() | Instruction() | Collective() | Shuffle():
                pass
        out.append(replace(s, body=_replaced(s.body, new)))
    return tuple(out)
