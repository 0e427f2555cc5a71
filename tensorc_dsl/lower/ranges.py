"""The ranges of the variables of flat loops. No loop begins below 0."""

from __future__ import annotations

from tensorc_dsl.ir.expr import Expr, constant
from tensorc_dsl.lower.flat import Flat, Loop, Parallel, inside
from tensorc_dsl.proof.sets.linear_forms import Interval, Ranges, joined
from tensorc_dsl.proof.sets.simplify import bounds


def most(e: Expr) -> int | None:
    """The largest value of an extent; None if there is no limit."""
    n = constant(e)
    return bounds(e, {})[1] if n is None else n


def span(end: Expr) -> Interval:
    """The range of a variable that counts from 0 to `end`."""
    n = most(end)
    return 0, None if n is None else n - 1


def interval(s: Loop) -> Interval:
    """The range of a loop's variable."""
    return constant(s.begin) or 0, span(s.end)[1]


def counted(s: Flat) -> dict[str, Interval]:
    """The ranges of the variables that a statement counts; empty unless it is a loop or several."""
    match s:
        case Loop():
            return {s.var: interval(s)}
        case Parallel():
            return {v: span(e) for v, e in zip(s.vars, s.extents, strict=True)}
        case _:
            return {}


def within(ranges: Ranges, s: Flat) -> Ranges:
    """The ranges inside of a statement, from those around it."""
    own = counted(s)
    return {**ranges, **own} if own else ranges


def hull(body: tuple[Flat, ...]) -> Ranges:
    """For each loop variable in a body, the smallest range that contains those of all of its loops."""
    out: dict[str, Interval] = {}
    for s in inside(body):
        for v, own in counted(s).items():
            out[v] = joined(out.get(v, own), own)
    return out
