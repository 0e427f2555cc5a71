"""The surrogate of an analysis: the process of the search, over draws alone, with its error on trials that it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.insight.structures import Point
from tensorc_dsl.search.features import Layout
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.model import Memory, Model

CHUNK = 2048
"""Points that are predicted at once: the process needs a number for each pair of a point and a trial."""


SLOW = 3.0
"""A schedule more than so many times as slow as the best, and slower than half of them, counts as that slow: how bad a bad
one must not influence the predictions for the good ones."""

FOLDS = 4
"""Parts of the trials, each of which is predicted from the others: so hyperparameters that fit noise are found out."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Predicts the log of the seconds of a point. `explained` is the share of the variance between trials that it explains
    where they are not among those that it is fitted to: 1 is perfect, 0 is no better than the mean."""

    layout: Layout
    model: Model
    explained: float

    @staticmethod
    def of(points: Sequence[Point], seconds: Sequence[float | None]) -> Surrogate:
        """The surrogate after these trials; a failure has no seconds, and at least `FOLDS` have some."""
        seconds = _limited(seconds)
        layout = Layout()
        rows = layout.matrix([layout.of_draws(p) for p in points])
        missed, explained = _missed(rows, seconds)
        # The deviations are corrected by the errors, as those of a search are.
        memory = Memory(errors=missed)
        return Surrogate(layout, Model.of(rows, list(seconds), np.zeros(len(rows)), memory), explained)

    def rows(self, points: Sequence[Point]) -> Array:
        return self.layout.matrix([self.layout.of_draws(p) for p in points])

    def log_seconds(self, points: Sequence[Point]) -> tuple[Array, Array]:
        """Means and deviations of the log of the true time of each point, without the noise of a measurement."""
        parts = [self.log_seconds_of(self.rows(points[n : n + CHUNK])) for n in range(0, len(points), CHUNK)]
        means, deviations = zip(*parts, strict=True) if parts else ((np.zeros(0),), (np.zeros(0),))
        return np.concatenate(means), np.concatenate(deviations)

    def log_seconds_of(self, rows: Array) -> tuple[Array, Array]:
        """As `log_seconds`, for points with these rows."""
        found = self.model.beliefs(rows, np.zeros(len(rows)))
        return -found.mean * self.model.deviation, found.deviation * self.model.deviation * self.model.calibration


def _limited(seconds: Sequence[float | None]) -> list[float | None]:
    """The times, none beyond the limit."""
    times = [s for s in seconds if s is not None]
    limit = max(SLOW * min(times), float(np.median(times)))
    return [None if s is None else min(s, limit) for s in seconds]


def _missed(rows: Array, seconds: Sequence[float | None]) -> tuple[list[float], float]:
    """The errors at trials that were not seen, in deviations, and the share of the variance that is explained."""
    valid = [n for n, s in enumerate(seconds) if s is not None]
    log = np.log([seconds[n] or 1.0 for n in valid])
    left = np.zeros(len(valid))
    missed = np.zeros(len(valid))
    for fold in range(FOLDS):
        unseen = np.arange(fold, len(valid), FOLDS)
        seen = np.setdiff1d(np.arange(len(valid)), unseen)
        model = Model.of(rows[np.array(valid)[seen]], np.exp(log[seen]).tolist(), np.zeros(len(seen)), Memory())
        mean, deviation = model.log_speed(rows[np.array(valid)[unseen]], np.zeros(len(unseen)))
        left[unseen] = log[unseen] + mean
        missed[unseen] = left[unseen] / deviation
    explained = 1.0 - float((left**2).sum()) / max(float(((log - log.mean()) ** 2).sum()), 1e-12)
    return missed.tolist(), min(1.0, max(0.0, explained))
