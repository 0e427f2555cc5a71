"""What trials say about draws: how much of the time each decides, which values it has in fast schedules, and whether it
may be pinned.

Importance is a functional analysis of variance over the surrogate: that of Hutter, Hoos and Leyton-Brown (ICML 2014),
with the surrogate in place of their forest and points from the prior, so that draws may be conditional and their
distributions depend on each other. A posterior is a distribution, with counterfactual slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.trace import Draw
from tensorc_dsl.tuning.insight.study import Point, Structures, Study, decisions_of, value_key
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Layout
from tensorc_dsl.tuning.search.trees import Forest

MOVED = 384
"""Points of which each draw is drawn anew."""

TREES, DEPTH = 30, 3
"""The forest that finds what a draw alone explains."""


@dataclass(frozen=True, slots=True)
class Importance:
    """Shares of the variance of the log time over the space. `alone` is what the draw explains by itself, whether it is made
    at all included (a Sobol index of first order); `total` adds its interplay with the other draws (a total Sobol index).
    `made` is the probability that the draw is made. `title` says whose draw it is."""

    name: str
    title: str
    alone: float
    total: float
    made: float


@one_blas_thread()
def importance(study: Study) -> tuple[Importance, ...]:
    """The importance of each draw, the most important first."""
    points = study.prior
    y, _ = study.surrogate.log_seconds(points)
    variance = float(y.var())
    found: list[Importance] = []
    for name, title in study.titles().items():
        made = sum(any(d.name == name for d in p) for p in points) / len(points)
        if variance < 1e-12 or not made:
            found.append(Importance(name, title, 0.0, 0.0, made))
            continue
        alone = _alone(name, points, y) / variance
        total = _total(study, name, points[:MOVED], y[:MOVED]) / variance
        found.append(Importance(name, title, min(1.0, alone), min(1.0, max(alone, total)), made))
    return tuple(sorted(found, key=lambda i: (-round(i.total, 6), study.names().index(i.name))))


def _alone(name: str, points: Sequence[Point], y: Array) -> float:
    """The variance of the mean given the draw, as far as a forest that saw one half of the points finds it in the other."""
    layout = Layout()
    vectors = [layout.of_draws(d for d in p if d.name == name) for p in points]
    x = layout.matrix(vectors)
    halves = (slice(0, None, 2), slice(1, None, 2))
    shares: list[float] = []
    for seen, unseen in (halves, halves[::-1]):
        guess = Forest.fit(x[seen], y[seen], trees=TREES, depth=DEPTH, rate=0.3).at(x[unseen])
        left = y[unseen] - guess
        shares.append(float(y[unseen].var() - (left * left).mean()))
    return max(0.0, sum(shares) / 2)


def _total(study: Study, name: str, points: Sequence[Point], y: Array) -> float:
    """Half the mean square of the change where only this draw is drawn anew (Jansen, 1999)."""
    rng = study.structures.rng(f"total/{name}")
    moved: list[Point] = []
    before: list[float] = []
    for point, value in zip(points, y.tolist(), strict=True):
        draw = next((d for d in point if d.name == name), None)
        if draw is None:
            # Where the draw is not made, it changes nothing.
            moved.append(point)
        else:
            moved.append(study.structures.moved(point, name, draw.distribution.sample(rng), rng) or point)
        before.append(value)
    after, _ = study.surrogate.log_seconds(moved)
    return float(((after - np.array(before)) ** 2).mean()) / 2


# Which values of a draw fast schedules have: the distribution of the space's points that are about as fast as the best.
#
# The points are those of the prior, weighted by the probability that the surrogate gives them to be that fast, and to work.
# They are found by Markov chains (Metropolis et al., 1953; Hastings, 1970) that begin at the fastest trials.


NEAR = 0.05
"""Schedules within this share of the best time count as fast."""

CHAINS, STEPS, WARM, KEPT = 32, 480, 80, 4
"""Chains, the moves of each, those at its beginning that do not count, and which of the others do: every fourth."""

STARTS = 8
"""The fastest trials, at which chains begin in turn."""


@dataclass(frozen=True, slots=True)
class Value:
    """A decision of a draw. `prior` and `posterior` are its probabilities, given that the draw is made: by the space, and
    among fast schedules."""

    decision: Decision
    prior: float
    posterior: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """What is learnt of a draw. `made_prior` and `made` are the probabilities that it is made: by the space, and among fast
    schedules. `values` are the decisions of fast schedules, the likeliest first; where the draw is never made, there is none.
    The posterior probabilities add up to 1, the prior ones to at most 1. `distribution` is one that it has."""

    name: str
    distribution: Distribution
    made_prior: float
    made: float
    values: tuple[Value, ...]


@one_blas_thread()
def posterior(study: Study) -> tuple[Learnt, ...]:
    """What is learnt of each draw, in the order of the space."""
    fast = fast_points(study)
    return tuple(_learnt(name, fast, study) for name in study.names())


def fast_points(study: Study) -> list[Point]:
    """Points of the space by their probability, given that they are within `NEAR` of the best time."""
    structures, rng = study.structures, study.structures.rng("posterior")
    means, _ = study.surrogate.log_seconds(study.points)
    starts = [study.points[int(n)] for n in np.argsort(means, kind="stable")[:STARTS]]
    points = [starts[n % len(starts)] for n in range(CHAINS)]
    weights = _log_weights(study, points)
    out: list[Point] = []
    for step in range(STEPS):
        proposed = [_proposed(structures, p, rng) for p in points]
        new = _log_weights(study, [p for p, _ in proposed])
        tickets = np.log(rng.random(CHAINS))
        for n, (point, correction) in enumerate(proposed):
            if tickets[n] < new[n] - weights[n] + correction:
                points[n], weights[n] = point, new[n]
        if step >= WARM and (step - WARM) % KEPT == 0:
            out += points
    return out


def _log_weights(study: Study, points: Sequence[Point]) -> Array:
    """Log probabilities that the points are fast and work."""
    rows = study.surrogate.rows(points)
    mean, deviation = study.surrogate.log_seconds_of(rows)
    limit = study.reference + math.log1p(NEAR)
    return scipy.special.log_ndtr((limit - mean) / np.maximum(deviation, 1e-6)) + study.surrogate.model.log_feasible(
        rows
    )


def _proposed(structures: Structures, point: Point, rng: np.random.Generator) -> tuple[Point, float]:
    """Another point, and what its log weight is corrected by: one draw anew, or moved to a neighbour."""
    if not point:
        return point, 0.0
    draw = point[int(rng.integers(len(point)))]
    d = draw.distribution
    near = d.moves(draw.decision) if rng.random() < 0.5 else []
    if not near:
        return structures.moved(point, draw.name, d.sample(rng), rng) or point, 0.0
    value = near[int(rng.integers(len(near)))]
    back = len(d.moves(value))
    correction = math.log(len(near) / max(1, back)) + d.log_prob(value) - d.log_prob(draw.decision)
    return structures.moved(point, draw.name, value, rng) or point, correction


def _learnt(name: str, fast: Sequence[Point], study: Study) -> Learnt:
    having = [d for p in fast for d in p if d.name == name]
    before = [d for p in study.prior for d in p if d.name == name]
    # A rare draw may be that of a slow trial alone, neither among the fast points nor among those from the prior.
    distribution = next(
        d.distribution for d in (*having, *before, *(d for p in study.points for d in p)) if d.name == name
    )
    counts: dict[tuple[str, Decision], int] = {}
    for d in having:
        counts[value_key(d.decision)] = counts.get(value_key(d.decision), 0) + 1
    distributions = [d.distribution for d in before or having]
    values = [Value(decision, _prior(distributions, decision), n / len(having)) for (_, decision), n in counts.items()]
    values.sort(key=lambda v: (-v.posterior, str(v.decision)))
    return Learnt(name, distribution, len(before) / len(study.prior), len(having) / len(fast), tuple(values))


def _prior(distributions: Sequence[Distribution], decision: Decision) -> float:
    """The mean probability of the decision over the distributions that the draw may have."""
    chances = {d: math.exp(d.log_prob(decision)) for d in set(distributions)}
    return sum(chances[d] for d in distributions) / len(distributions)


# Counterfactual slices: the time of the best schedule with another decision of one draw, as the surrogate predicts it.


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


# Draws that may be pinned, so that a later search has less to decide.


SURE = 0.9
"""A value that so many of the fast schedules have is settled."""

NO_MATTER = 0.01
"""A draw with a smaller share of the variance does not matter."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A draw of the best schedule, its decision there, and why it may be pinned: nearly all fast schedules have this
    decision, or it hardly changes the time. `share` is that of the fast schedules, or that of the variance."""

    name: str
    decision: Decision
    why: Literal["settled", "no matter"]
    share: float


def pins(study: Study, found: Sequence[Importance], learnt: Sequence[Learnt]) -> tuple[Pin, ...]:
    """The pins, in the order of the space; none where the surrogate explains too little to say."""
    if study.surrogate.explained < 0.5:
        return ()
    matter = {i.name: i for i in found}
    out: list[Pin] = []
    known = {l.name: l for l in learnt}
    for d in study.best:
        if d.distribution.size() < 2:
            continue
        l, i = known[d.name], matter[d.name]
        share = next((v.posterior * l.made for v in l.values if value_key(v.decision) == value_key(d.decision)), 0.0)
        if share >= SURE:
            out.append(Pin(d.name, d.decision, "settled", share))
        elif i.total < NO_MATTER:
            out.append(Pin(d.name, d.decision, "no matter", i.total))
    return tuple(out)
