"""Finds the names that occur in lowered statements: what a function of its own has to be given."""

from __future__ import annotations

from tensorc_dsl.ir.expr import Expr, free_vars, loads
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, Parallel, Shuffle, body_of


def mentioned(body: tuple[Flat, ...]) -> tuple[set[str], set[str]]:
    """The buffers and variables that occur in statements."""
    buffers: set[str] = set()
    names: set[str] = set()
    exprs: list[Expr] = []

    def go(part: tuple[Flat, ...]) -> None:
        for s in part:
            match s:
                case Store():
                    buffers.add(s.buffer)
                    exprs.extend((*s.indices, s.value))
                case Loop():
                    exprs.extend((s.begin, s.end))
                case Parallel():
                    exprs.extend(s.extents)
                case If():
                    exprs.append(s.cond)
                case Alloc():
                    exprs.append(s.size)
                case Instruction() | Collective() | Shuffle():
                    pass  # the same names occur in its body
            go(body_of(s))

    go(body)
    for e in exprs:
        names |= free_vars(e)
        buffers.update(x.buffer for x in loads(e))
    return buffers, names
