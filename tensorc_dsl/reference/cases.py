"""Cuts a box of block instances where conditions and clamps turn, so that each part knows one case only.

What a stencil with a border reads is a view in the middle then, and no gather; no branch is evaluated that the part does
not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Compare, Expr, Logic, Not, Select, children, constant, dtype_of
from tensorc_dsl.reference.boxes import Box, Form, form

WORTH = 4096
"""A smaller box is left whole: its gathers take no longer than the operations on its parts would."""

MOST = 64
"""A box is left whole that would have more parts."""


def cases(exprs: Sequence[Expr], box: Box) -> list[Box]:
    """The parts of the box, in any order, in each of which the conditions over one iterator are decided."""
    done: list[Box] = []
    waiting = [box]
    while waiting:
        part = waiting.pop()
        edge = next((found for e in exprs for found in _edges(e, part)), None) if part.volume > WORTH else None
        if edge is None:
            done.append(part)
        else:
            axis, at = edge
            waiting += part.cut(axis, [at])
        if len(done) + len(waiting) > MOST:
            return [box]
    return done


def _edges(e: Expr, box: Box) -> Iterator[tuple[int, int]]:
    """The axes and positions at which a condition that decides about `e` turns within the box."""
    match e:
        case Select(cond=c, then=a, other=b):
            decided = truth(c, box)
            if decided is None:
                yield from _edges(c, box)
            for branch in [a, b] if decided is None else [a if decided else b]:
                yield from _edges(branch, box)
        case Logic() | Not():
            # `i == 0 and f`: where the first is decided, the second may no longer matter.
            for c in children(e):
                if truth(c, box) is None:
                    yield from _edges(c, box)
        case Compare(op=op):
            f = _difference(e, box)
            if f is not None and truth(e, box) is None:
                if op not in ("<=", ">"):
                    yield from _turns(f, box, 0)
                if op not in ("<", ">="):
                    yield from _turns(f, box, 1)
        case Binary(op="min" | "max", lhs=a, rhs=b) if dtype_of(a) == INDEX:
            f = _difference(e, box)
            if f is not None and form(e, box) is None:
                yield from _turns(f, box, 0)
            yield from _edges(a, box)
            yield from _edges(b, box)
        case _:
            for c in children(e):
                yield from _edges(c, box)


def _difference(e: Compare | Binary, box: Box) -> Form | None:
    """Left side less right side; None if they are not linear, or no positions."""
    if dtype_of(e.lhs) != INDEX:
        return None
    return form(Binary("-", e.lhs, e.rhs), box)


def _turns(f: Form, box: Box, limit: int) -> Iterator[tuple[int, int]]:
    """Where `f < limit` turns within the box, if one axis alone decides."""
    axes = [a for a, factor in enumerate(f.factors) if factor and box.size[a] > 1]
    if len(axes) != 1:
        return
    (axis,) = axes
    c = f.factors[axis]
    rest = f.constant - limit
    rest += sum(p * s for a, (p, s) in enumerate(zip(f.factors, box.start, strict=True)) if a != axis)
    # c * v + rest < 0 holds below the edge, or from it on.
    at = -(rest // c) if c > 0 else rest // -c + 1
    if box.start[axis] < at < box.start[axis] + box.size[axis]:
        yield axis, at


def truth(e: Expr, box: Box) -> bool | None:
    """Whether a condition holds in all of the box, or nowhere in it; None if it is not known to."""
    match e:
        case Logic(op=op, lhs=a, rhs=b):
            x, y = truth(a, box), truth(b, box)
            decisive = op == "or"
            if decisive in (x, y):
                return decisive
            return None if x is None or y is None else not decisive
        case Not(operand=a):
            x = truth(a, box)
            return None if x is None else not x
        case Compare(op=op):
            f = _difference(e, box)
            if f is None:
                return None
            low, high = f.interval(box)
            match op:
                case "<" | ">=":
                    found = _below(low, high, 0)
                case ">" | "<=":
                    found = _below(low, high, 1)
                case "==" | "!=":
                    found = True if low == high == 0 else False if low > 0 or high < 0 else None
            return found if found is None or op in ("<", "<=", "==") else not found
        case _:
            known = constant(e)
            return None if known is None else bool(known)


def _below(low: int, high: int, limit: int) -> bool | None:
    return True if high < limit else False if low >= limit else None
