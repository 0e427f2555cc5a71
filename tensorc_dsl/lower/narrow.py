"""Begins and ends loops where conditions do: a loop whose whole work stands under conditions on its variable runs only where
these can hold.

    for p in 0 .. n { S[i] = S[i] + (V[p] if R[i] <= p and p < R[i + 1] else 0.0) }
        ->  for p in max(0, R[i]) .. min(n, R[i + 1]) { S[i] = S[i] + V[p] }

What does not change in the loop is computed before it. A number that is loaded for this is loaded only where the loop would
load it: behind the tests before, and if an iteration is left; or if it is an element of an argument for certain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorc_dsl.ir.expr import (
    Compare,
    Expr,
    conjunction,
    free_vars,
    sub,
)
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.decided import decided
from tensorc_dsl.lower.ends import ended_apart
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Shuffle,
    store_loads,
    stores,
)
from tensorc_dsl.lower.plans import Around, Known, Plan, extreme, plan_of
from tensorc_dsl.lower.ranges import interval, within
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import bounds, simplify_where

SHORT = 4
"""The number of iterations up to which a loop keeps its conditions: it is written out."""

CHUNK = 32
"""The same, of a loop inside of another one that has bounds by the same condition."""

PRIVATE = 64
"""The same, of a loop that subscripts a private buffer, which may be in registers if the loop is written out."""

PIECES = 4
"""How many times longer than the parts at its ends a loop has to be for the part between them to have code of its own."""


def narrow(body: tuple[Flat, ...], known: Known, ranges: Ranges | None = None) -> tuple[Flat, ...]:
    """The same results, with serial loops that begin and end where the conditions of all their work do."""
    return _narrow(body, known, Around(ranges or {}, private=known.private))


def _narrow(body: tuple[Flat, ...], known: Known, around: Around) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store() | Loop(kind=LoopKind.TENSORIZED) | Instruction() | Collective() | Shuffle():
                out.append(s)
            case Loop():
                out.extend(_loop(s, known, around))
            case Alloc():
                own = {s.name} if s.space == "stack" else set[str]()
                out.append(replace(s, body=_narrow(s.body, known, replace(around, private=around.private | own))))
            case Parallel() | If():
                out.append(replace(s, body=_narrow(s.body, known, around.within(s))))
    return tuple(out)


def _loop(s: Loop, known: Known, around: Around) -> tuple[Flat, ...]:
    inner = around.within(s)
    if s.kind is LoopKind.VECTORIZED:
        inner = replace(inner, lanes=within(around.lanes, s))
    plan = plan_of(s, known, around) if s.kind is LoopKind.SERIAL and not s.scattered else None
    if s.kind is LoopKind.SERIAL and not s.scattered and not (plan and plan.worth):
        s = ended_apart(s, known, around, worth=True)
    if plan is None or not plan.worth or _stays_whole(s, plan, around):
        return (replace(s, body=_narrow(s.body, known, inner)),)
    return _narrowed(s, plan, known, inner)


def _stays_whole(s: Loop, plan: Plan, around: Around) -> bool:
    """Whether a loop is so short that it should be written out with its conditions."""
    count = bounds(sub(s.end, s.begin), around.ranges)[1]
    if count is None:
        return False
    if count <= PRIVATE and any(s.var in free_vars(i) for i in _subscripts(s.body, around.private)):
        return True
    return count <= (SHORT if around.asked.isdisjoint((*plan.facts, *plan.inner_facts)) else CHUNK)


def _subscripts(body: tuple[Flat, ...], names: frozenset[str]) -> Iterable[Expr]:
    for x in stores(body):
        yield from x.indices if x.buffer in names else ()
        for y in store_loads(x):
            yield from y.indices if y.buffer in names else ()


def _narrowed(s: Loop, plan: Plan, known: Known, inner: Around) -> tuple[Flat, ...]:
    begin, end = s.begin, s.end
    guards: list[Expr] = []
    for n, stage in enumerate(plan.stages):
        guards += [Compare("<", begin, end)] if n else []
        guards += stage.guards
        begin = extreme("max", begin, [x.at for x in stage.lows], inner.ranges)
        end = extreme("min", end, [x.at for x in stage.highs], inner.ranges)
    asked = inner.asked | {*plan.facts, *plan.inner_facts}
    body = decided(s.body, plan.facts)
    made: list[Flat] = []
    edges = _middle(s, plan, begin, end, inner) if inner.whole else None
    once = replace(inner, asked=asked, whole=False)
    if edges is None:
        made.append(replace(s, begin=begin, end=end, body=_narrow(body, known, once)))
    else:
        near, far = edges
        border = _narrow(body, known, once)
        plain = _narrow(decided(body, plan.inner_facts), known, replace(inner, asked=asked))
        made += [replace(s, begin=begin, end=near, body=border)] if near != begin else []
        made.append(replace(s, begin=near, end=far, body=plain))
        made += [replace(s, begin=far, end=end, body=border)] if far != end else []
    cond = conjunction(simplify_where(guards, inner.ranges))
    return tuple(made) if cond is None else (If(cond, tuple(made)),)


def _middle(s: Loop, plan: Plan, begin: Expr, end: Expr, inner: Around) -> tuple[Expr, Expr] | None:
    """Where the middle of a loop begins and ends, in which all conditions hold; None if it is not worth code of its own."""
    if not plan.inner_facts:
        return None
    lows = [x for stage in plan.stages for x in stage.lows]
    highs = [x for stage in plan.stages for x in stage.highs]
    first, last = interval(s)
    longest = [] if first is None or last is None else [last - first + 1]
    apart = (bounds(sub(high.at, low.at), inner.ranges)[1] for low in lows for high in highs)
    longest += [n for n in apart if n is not None]
    if longest and PIECES * sum(x.width for x in (*lows, *highs)) > min(longest):
        return None
    near, far = begin, end
    if any(x.sure != x.at for x in lows):
        near = extreme("min", extreme("max", s.begin, [x.sure for x in lows], inner.ranges), [end], inner.ranges)
    if any(x.sure != x.at for x in highs):
        far = extreme("max", extreme("min", s.end, [x.sure for x in highs], inner.ranges), [near], inner.ranges)
    return near, far
