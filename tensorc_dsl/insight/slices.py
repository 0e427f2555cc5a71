"""Counterfactual slices: the time of the best schedule with another decision of one draw, as the surrogate predicts it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorc_dsl.insight.structures import Point, decisions_of, value_key
from tensorc_dsl.insight.study import Study
from tensorc_dsl.measure.blas import one_blas_thread
from tensorc_dsl.trace.distribution import Decision
from tensorc_dsl.trace.draw import Draw

MOST = 16
"""Decisions of a draw that are looked at: the best one's, and those nearest to it by moves."""

WIDE = 1.96
"""Deviations on each side that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Step:
    """A decision, and the seconds that the surrogate predicts: the middle, and the ends of an interval that holds 95 %.

    `refused` where a step of the schedule does not apply; then there is no prediction. `others` are the draws that have
    other decisions than the best schedule has, since theirs are impossible now.
    """

    decision: Decision
    refused: bool
    middle: float
    low: float
    high: float
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """The decisions of one draw of the best schedule, in the order of their features. `whole` if these are all there are."""

    name: str
    best: Decision
    steps: tuple[Step, ...]
    whole: bool


@one_blas_thread()
def slices(study: Study) -> tuple[Slice, ...]:
    """A slice for each draw of the best schedule that has more than one decision, in the order of the space."""
    return tuple(_slice(study, d) for d in study.best if d.distribution.size() > 1)


def _slice(study: Study, draw: Draw) -> Slice:
    ordered = nearest(draw, MOST)
    points = [_changed(study, draw, v) for v in ordered]
    there = [p for p in points if p is not None]
    means, deviations = study.surrogate.log_seconds(there)
    predictions = zip(map(float, means), map(float, deviations), strict=True)
    steps: list[Step] = []
    for value, point in zip(ordered, points, strict=True):
        if point is None:
            steps.append(Step(value, True, math.nan, math.nan, math.nan, ()))
            continue
        mean, deviation = next(predictions)
        low, high = math.exp(mean - WIDE * deviation), math.exp(mean + WIDE * deviation)
        steps.append(Step(value, False, math.exp(mean), low, high, _others(study.best, point, draw.name)))
    return Slice(draw.name, draw.decision, tuple(steps), len(ordered) == draw.distribution.size())


def nearest(draw: Draw, most: int) -> list[Decision]:
    """The decision, its neighbours, their neighbours, and so on, at most so many; in the order of their features."""
    found = {value_key(draw.decision): draw.decision}
    queue = [draw.decision]
    while queue and len(found) < most:
        for value in draw.distribution.moves(queue.pop(0)):
            if value_key(value) not in found and len(found) < most:
                found[value_key(value)] = value
                queue.append(value)
    return sorted(found.values(), key=lambda v: (draw.distribution.features(v), str(v)))


def _changed(study: Study, draw: Draw, value: Decision) -> Point | None:
    """The best point with that decision, by an expansion: a refusal is found by no other way."""
    if value_key(value) == value_key(draw.decision):
        return study.best
    rng = study.structures.rng(f"slice/{draw.name}/{value}")
    return study.structures.expanded(decisions_of(study.best) | {draw.name: value}, rng)


def _others(best: Point, point: Point, name: str) -> tuple[str, ...]:
    before = {d.name: value_key(d.decision) for d in best}
    after = {d.name: value_key(d.decision) for d in point}
    return tuple(n for n in dict.fromkeys((*before, *after)) if n != name and before.get(n) != after.get(n))
