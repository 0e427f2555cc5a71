"""Gaussian-process regression: Matérn 5/2 or 3/2, one length scale per feature, fitted to the mode of the posterior.

"RW" is Rasmussen & Williams, Gaussian Processes for Machine Learning (2006).
Inputs are standardized features (mean 0, variance 1), targets are standardized, so the prior mean is 0.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from importlib import import_module

import numpy as np
import scipy  # its parts are loaded when they are first used: most commands never do
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.processes.machine import all_alike

Array = NDArray[np.float64]

_JITTER = 1e-8
"""Added to the diagonal: keeps Cholesky going where two inputs are equal (RW section 3.4.3 recommends a small one)."""

_BOUNDS_LENGTH = (math.log(1e-1), math.log(1e3))
_BOUNDS_SIGNAL = (math.log(5e-2), math.log(2e1))
_BOUNDS_NOISE = (math.log(1e-4), math.log(1e0))


@frozen
class Prior:
    """Normal priors on the logarithms of the hyperparameters, as (mean, deviation).

    The length scales' grow with the square root of the dimension, as the distance between random points does; without
    that, a GP over dozens of features sees no two points as related (Hvarfner, Hellsten & Nardi, ICML 2024, section 4).
    """

    length: tuple[float, float]
    signal: tuple[float, float] = (0.0, 1.0)
    noise: tuple[float, float] = (math.log(2e-2), 1.0)

    @staticmethod
    def of_dimension(d: int) -> Prior:
        return Prior(length=(0.5 * math.log(max(1, d)), 1.0))


@frozen
class Hyper:
    """The hyperparameters: log length scales, log signal variance, log noise variance.

    A `rough` process has Matérn 3/2 for its covariance, in place of 5/2: functions with bends.
    """

    log_lengths: Array
    log_signal: float
    log_noise: float
    rough: bool = False

    @staticmethod
    def initial(d: int, rough: bool = False) -> Hyper:
        prior = Prior.of_dimension(d)
        return Hyper(np.full(d, prior.length[0]), prior.signal[0], prior.noise[0], rough)

    def vector(self) -> Array:
        return np.concatenate([self.log_lengths, [self.log_signal, self.log_noise]])

    @staticmethod
    def of_vector(v: Array, rough: bool = False) -> Hyper:
        return Hyper(v[:-2].copy(), float(v[-2]), float(v[-1]), rough)


def _distances(a: Array, b: Array) -> Array:
    """Euclidean distances between the rows; the square is clipped at 0 where rounding makes it negative."""
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * (a @ b.T)
    return np.sqrt(np.maximum(squared, 0.0))


def kernel(a: Array, b: Array, hyper: Hyper) -> Array:
    """Covariances of the latent function between rows of a and of b: RW eq. 4.17 with nu = 5/2, or 3/2."""
    scale = np.exp(-hyper.log_lengths)
    d = _distances(a * scale, b * scale)
    if hyper.rough:
        d *= math.sqrt(3.0)
        return math.exp(hyper.log_signal) * (1.0 + d) * np.exp(-d)
    r = math.sqrt(5.0) * d
    return math.exp(hyper.log_signal) * (1.0 + r + r * r / 3.0) * np.exp(-r)


def objective(
    v: Array, x: Array, y: Array, prior: Prior, known: Array | float = 0.0, rough: bool = False
) -> tuple[float, Array]:
    """Negative log posterior of the hyperparameters up to a constant, and its gradient.

    `known` is the part of each value's noise variance that was measured, (n,); the fitted one is that of all values.
    """
    hyper = Hyper.of_vector(v, rough)
    n = len(y)
    signal, noise = math.exp(hyper.log_signal), math.exp(hyper.log_noise)
    z = x * np.exp(-hyper.log_lengths)
    r = math.sqrt(3.0 if rough else 5.0) * _distances(z, z)
    decay = np.exp(-r)
    k = signal * (1.0 + r if rough else 1.0 + r + r * r / 3.0) * decay
    lower = scipy.linalg.cholesky(k + np.diag(noise + _JITTER + known * np.ones(n)), lower=True, check_finite=False)
    alpha = scipy.linalg.cho_solve((lower, True), y, check_finite=False)
    # RW eq. 2.30, as in algorithm 2.1, line 7.
    value = 0.5 * float(y @ alpha) + float(np.log(np.diag(lower)).sum()) + 0.5 * n * math.log(2.0 * math.pi)
    # RW eq. 5.9: the derivative of the log likelihood is tr((alpha alpha^T - K^-1) dK) / 2.
    inverse = scipy.linalg.cho_solve((lower, True), np.eye(n), check_finite=False)
    w = np.outer(alpha, alpha) - inverse
    # dk / d(log l_j) = signal * 5/3 * (1 + r) * exp(-r) * (z_aj - z_bj)^2, with r the scaled distance times sqrt(5);
    # for nu = 3/2 it is signal * 3 * exp(-r) * (z_aj - z_bj)^2, with r the scaled distance times sqrt(3).
    m = w * (signal * (3.0 if rough else (5.0 / 3.0) * (1.0 + r)) * decay)
    by_length = 0.5 * (2.0 * (z * z * m.sum(1)[:, None]).sum(0) - 2.0 * (z * (m @ z)).sum(0))
    by_signal = 0.5 * float((w * k).sum())
    by_noise = 0.5 * noise * float(np.trace(w))
    gradient = -np.concatenate([by_length, [by_signal, by_noise]])
    d = x.shape[1]
    mean = np.array([prior.length[0]] * d + [prior.signal[0], prior.noise[0]])
    deviation = np.array([prior.length[1]] * d + [prior.signal[1], prior.noise[1]])
    t = (v - mean) / deviation
    return value + 0.5 * float(t @ t), gradient + t / deviation


@cache
def _load() -> None:
    """Load what solves equations, before the first use of it and not by it: it runs on as many threads as the rest."""
    import_module("scipy.linalg")
    all_alike()


def fit(x: Array, y: Array, start: Hyper | None = None, iterations: int = 60, known: Array | float = 0.0) -> Hyper:
    """Hyperparameters at a mode of their posterior, by L-BFGS from `start`; `known` is as in `objective`."""
    _load()
    d = x.shape[1]
    prior = Prior.of_dimension(d)
    bounds = [_BOUNDS_LENGTH] * d + [_BOUNDS_SIGNAL, _BOUNDS_NOISE]
    low, high = np.array(bounds).T
    begin = start or Hyper.initial(d)
    found = scipy.optimize.minimize(
        objective,
        np.clip(begin.vector(), low, high),
        args=(x, y, prior, known, begin.rough),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": iterations},
    )
    return Hyper.of_vector(np.asarray(found.x, dtype=np.float64), begin.rough)


@frozen
class Posterior:
    """A GP given its data."""

    hyper: Hyper
    x: Array
    lower: Array
    alpha: Array

    @staticmethod
    def of(x: Array, y: Array, hyper: Hyper, known: Array | float = 0.0) -> Posterior:
        _load()
        noisy = kernel(x, x, hyper) + np.diag(math.exp(hyper.log_noise) + _JITTER + known * np.ones(len(y)))
        lower = scipy.linalg.cholesky(noisy, lower=True, check_finite=False)  # RW algorithm 2.1, line 2
        return Posterior(hyper, x, lower, scipy.linalg.cho_solve((lower, True), y, check_finite=False))  # line 3

    def at(self, points: Array) -> Beliefs:
        """Means and variances of the latent function at the rows of `points`."""
        cross = kernel(self.x, points, self.hyper)
        v = scipy.linalg.solve_triangular(self.lower, cross, lower=True, check_finite=False)  # RW algorithm 2.1, line 5
        variance = math.exp(self.hyper.log_signal) - (v * v).sum(0)  # line 6
        return Beliefs(self.hyper, points, cross.T @ self.alpha, np.maximum(variance, 0.0), v)  # line 4


@frozen
class Beliefs:
    """What a GP believes about a set of points; `v` holds the solved cross-covariances, one column per point."""

    hyper: Hyper
    points: Array
    mean: Array
    variance: Array
    v: Array

    @property
    def deviation(self) -> Array:
        return np.sqrt(self.variance)

    def shifted(self, by: Array) -> Beliefs:
        """The same with other means."""
        return replace(self, mean=self.mean + by)

    def deviations(self, normal: Array) -> Array:
        """Joint deviations from the means: a row for each point, from independent standard normal numbers (RW appendix A.2).

        By eigenvalues, since the covariance of close points is singular but for rounding.
        """
        values, vectors = np.linalg.eigh(kernel(self.points, self.points, self.hyper) - self.v.T @ self.v)
        return (vectors * np.sqrt(np.maximum(values, 0.0))) @ normal

    def believing(self, i: int) -> Beliefs:
        """The beliefs after point i had been observed to be just its mean: means stay, variances shrink.

        One more row of the Cholesky factor and of `v` (the kriging believer of Ginsbourger, Le Riche & Carraro, 2010).
        """
        cross = kernel(self.points[i : i + 1], self.points, self.hyper)[0]
        pivot = math.sqrt(max(float(self.variance[i]), 0.0) + math.exp(self.hyper.log_noise) + _JITTER)
        row = (cross - self.v[:, i] @ self.v) / pivot
        return replace(
            self, variance=np.maximum(self.variance - row * row, 0.0), v=np.concatenate([self.v, row[None, :]])
        )


class Sweep:
    """Beliefs about the latent function at fixed points, as observations come in one by one.

    The factor of the covariance and the solved cross-covariances grow by a row for each (RW algorithm 2.1, row by row), so
    one of n observations costs n multiplications for each of the points.
    """

    def __init__(self, points: Array, hyper: Hyper, x: Array, known: Array | float = 0.0) -> None:
        """Given inputs `x` (n, d) that are observed, with `known` as in `objective`; `points` is (m, d)."""
        _load()
        self._hyper, self._points, self._x = hyper, points, x
        noisy = kernel(x, x, hyper) + np.diag(math.exp(hyper.log_noise) + _JITTER + known * np.ones(len(x)))
        self._lower = scipy.linalg.cholesky(noisy, lower=True, check_finite=False)
        self._count = len(x)
        v = scipy.linalg.solve_triangular(self._lower, kernel(x, points, hyper), lower=True, check_finite=False)
        self._v = np.vstack([v, np.empty((max(8, len(x) // 4), len(points)))])
        self.variance = np.maximum(math.exp(hyper.log_signal) - np.einsum("ij,ij->j", v, v), 0.0)
        """Of the latent function at each point, (m,)."""

    def __len__(self) -> int:
        return self._count

    def add(self, x: Array, known: float = 0.0) -> None:
        """One more input, (d,), is observed, with so much known noise."""
        n, row = self._count, x[None, :]
        if n == len(self._v):
            self._v = np.vstack([self._v, np.empty((n, len(self._points)))])
        beside = kernel(self._x, row, self._hyper)[:, 0]
        solved = scipy.linalg.solve_triangular(self._lower, beside, lower=True, check_finite=False)
        own = math.exp(self._hyper.log_signal) + math.exp(self._hyper.log_noise) + known + _JITTER
        pivot = math.sqrt(max(own - float(solved @ solved), _JITTER))
        lower = np.zeros((n + 1, n + 1))
        lower[:n, :n], lower[n, :n], lower[n, n] = self._lower, solved, pivot
        self._lower, self._x = lower, np.vstack([self._x, row])
        self._v[n] = (kernel(row, self._points, self._hyper)[0] - solved @ self._v[:n]) / pivot
        self.variance = np.maximum(self.variance - self._v[n] ** 2, 0.0)
        self._count = n + 1

    def mean(self, y: Array) -> Array:
        """The mean at each point, (m,), where the inputs had the values `y`, (n,), in the order in which they came."""
        solved = scipy.linalg.solve_triangular(self._lower, y, lower=True, check_finite=False)
        return solved @ self._v[: self._count]
