"""Checks priors: other weights for draws of a space or schedule; and makes spaces and schedules with these."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.check import problems
from tensorc_dsl.check.problems import where
from tensorc_dsl.schedule.trace.distribution import Decision, Weights
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near_or_elsewhere

MOST = 2.0**100
"""Larger weights could add up to infinity."""


def check_prior(p: t.PriorDef, choices: Collection[str]) -> Iterator[Diagnostic]:
    """The findings about a prior; `choices` are the spaces and schedules of its file."""
    if p.of not in choices:
        yield problems.UNKNOWN_CHOICE(p.of.span, notes=near_or_elsewhere(p.of, choices), name=p.of)
    first: dict[str, t.Weighing] = {}
    for w in p.weights:
        if w.draw in first:
            note = where("the first ones", first[w.draw].draw.span)
            yield problems.WEIGHED_TWICE(w.draw.span, notes=(note,), draw=w.draw)
        first.setdefault(w.draw, w)
        yield from _wrong(w)


def with_prior(base: t.SpaceDef | t.ScheduleDef, p: t.PriorDef) -> t.SpaceDef | t.ScheduleDef:
    """The space or schedule that the prior makes of another one, whose own weights stay for the draws that it leaves out."""
    weighed = {w.draw for w in p.weights}
    kept = tuple(w for w in base.prior or () if w.draw not in weighed)
    return replace(base, name=p.name, doc=p.doc, span=p.span, prior=(*kept, *p.weights))


def weights_of(w: t.Weighing) -> Weights:
    """The weights of a draw in a prior without findings."""
    assert isinstance(w.weights, t.MapExpr)
    listed: list[tuple[Decision, float]] = []
    rest = 0.0
    for key, value in w.weights.items:
        assert isinstance(value, t.Number)
        decision = literal_of(key)
        if decision is None:
            rest = float(value.value)
        else:
            listed.append((decision, float(value.value)))
    return Weights(tuple(listed), rest)


def literal_of(e: t.Expr) -> Decision | None:
    """The decision that a literal spells; None for other expressions."""
    match e:
        case t.Number(value=value) | t.Bool(value=value) | t.String(value=value) if value == value:
            return value
        case t.Negate(operand=t.Number(value=value)) if value == value:
            return -value
        case t.ListExpr(items=items):
            ints = tuple(i.value for i in items if isinstance(i, t.Number) and isinstance(i.value, int))
            return ints if len(ints) == len(items) else None
        case _:
            return None


def _wrong(w: t.Weighing) -> Iterator[Diagnostic]:
    if not isinstance(w.weights, t.MapExpr):
        yield problems.NO_WEIGHTS(w.weights.span, draw=w.draw, why="weights are a map")
        return
    seen: set[tuple[str, Decision]] = set()
    rests = 0
    for key, value in w.weights.items:
        decision = literal_of(key)
        if isinstance(key, t.Wildcard):
            rests += 1
        elif decision is None:
            yield problems.NO_WEIGHTS(key.span, draw=w.draw, why=f"{key.span.text} is no value that is written down")
        elif (kind := (type(decision).__name__, decision)) in seen:
            yield problems.NO_WEIGHTS(key.span, draw=w.draw, why=f"{key.span.text} is listed twice")
        else:
            seen.add(kind)
        if not isinstance(value, t.Number) or not value.value < MOST:
            yield problems.NO_WEIGHTS(value.span, draw=w.draw, why="a weight is a finite number from 0")
        elif isinstance(key, t.Wildcard) and not value.value > 0:
            yield problems.NO_WEIGHTS(
                value.span, draw=w.draw, why="the weight of `_` is 0, and nothing may become impossible"
            )
    if rests != 1:
        why = "`_` is listed twice" if rests else "`_` is missing, and nothing may become impossible"
        yield problems.NO_WEIGHTS(w.weights.span, draw=w.draw, why=why)
