"""Which values of a draw fast schedules have: the distribution of the space's points that are about as fast as the best.

The points are those of the prior, weighted by the probability that the surrogate gives them to be that fast, and to work.
They are found by Markov chains (Metropolis et al., 1953; Hastings, 1970) that begin at the fastest trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from tensorc_dsl.insight.structures import Point, Structures, value_key
from tensorc_dsl.insight.study import Study
from tensorc_dsl.measure.blas import one_blas_thread
from tensorc_dsl.search.gp import Array
from tensorc_dsl.trace.distribution import Decision, Distribution

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
    return tuple(_learnt(name, fast, study.prior) for name in study.names())


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


def _learnt(name: str, fast: Sequence[Point], prior: Sequence[Point]) -> Learnt:
    having = [d for p in fast for d in p if d.name == name]
    before = [d for p in prior for d in p if d.name == name]
    counts: dict[tuple[str, Decision], int] = {}
    for d in having:
        counts[value_key(d.decision)] = counts.get(value_key(d.decision), 0) + 1
    distributions = [d.distribution for d in before or having]
    values = [Value(decision, _prior(distributions, decision), n / len(having)) for (_, decision), n in counts.items()]
    values.sort(key=lambda v: (-v.posterior, str(v.decision)))
    return Learnt(
        name, (having or before)[0].distribution, len(before) / len(prior), len(having) / len(fast), tuple(values)
    )


def _prior(distributions: Sequence[Distribution], decision: Decision) -> float:
    """The mean probability of the decision over the distributions that the draw may have."""
    chances = {d: math.exp(d.log_prob(decision)) for d in set(distributions)}
    return sum(chances[d] for d in distributions) / len(distributions)
