"""The surrogate model of a search: the speed of candidates, and the probability that they fail.

"RW" is Rasmussen & Williams, Gaussian Processes for Machine Learning (2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from tensorc_dsl.search.features import Scaler
from tensorc_dsl.search.gp import Array, Beliefs, Hyper, Posterior, fit

_RANGE = math.log(20.0)
"""Speeds below a twentieth of the best count as a twentieth: how bad a bad one is must not shape the model."""

_FAILURES = 3
"""With fewer failures than this the classifier stays silent."""


@dataclass(frozen=True, slots=True)
class Model:
    """Beliefs about candidates with the given features. Speeds are in deviations of log speed from the mean.

    `worked` is a regression on +1 (valid) and -1 (failed), standardized, and `even` the value midway between; it is
    None while there are too few failures to learn from.
    """

    scaler: Scaler
    hyper: Hyper
    posterior: Posterior
    worked: Posterior | None
    even: float

    @staticmethod
    def of(rows: Array, seconds: list[float | None], warm: dict[int, float]) -> Model:
        """The model after these trials: a row of features and a time each, None for a failure; at least one time.

        `warm` holds log length scales by column from the last fit and is brought up to date.
        """
        good = np.array([s is not None for s in seconds])
        speed = np.array([-math.log(s) for s in seconds if s is not None])
        speed = np.maximum(speed, speed.max() - _RANGE)
        deviation = float(speed.std())
        y = (speed - speed.mean()) / (deviation if deviation > 1e-9 else 1.0)
        scaler = Scaler.of(rows)
        x = scaler(rows)
        start = Hyper.initial(x.shape[1])
        lengths = np.array([warm.get(int(c), float(s)) for c, s in zip(scaler.kept, start.log_lengths, strict=True)])
        hyper = fit(x[good], y, Hyper(lengths, start.log_signal, start.log_noise))
        warm.update(zip(map(int, scaler.kept), map(float, hyper.log_lengths), strict=True))
        worked, even = None, 0.0
        if len(good) - good.sum() >= _FAILURES:
            label = np.where(good, 1.0, -1.0)
            z = (label - label.mean()) / label.std()
            worked, even = Posterior.of(x, z, fit(x, z)), float(-label.mean() / label.std())
        return Model(scaler, hyper, Posterior.of(x[good], y, hyper), worked, even)

    def beliefs(self, rows: Array) -> Beliefs:
        """Mean and variance of the standardized log speed of each row."""
        return self.posterior.at(self.scaler(rows))

    def log_feasible(self, points: Array) -> Array:
        """Log probability that each (scaled) point compiles, runs and is right; 0 while there is little to go by.

        Least-squares classification, squashed by the normal distribution function (RW section 6.5 and eq. 6.42).
        """
        if self.worked is None:
            return np.zeros(len(points))
        beliefs = self.worked.at(points)
        spread = np.sqrt(beliefs.variance + math.exp(self.worked.hyper.log_noise))
        return log_ndtr((beliefs.mean - self.even) / spread)
