"""How much of the time each draw decides: a functional analysis of variance over the surrogate.

The analysis is that of Hutter, Hoos and Leyton-Brown (ICML 2014), with the surrogate in place of their forest and points from
the prior, so that draws may be conditional and their distributions depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.processes.cores import one_blas_thread
from tensorc_dsl.tuning.insight.study import Point, Study
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
