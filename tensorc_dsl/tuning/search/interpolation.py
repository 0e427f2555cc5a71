"""Predicts the seconds of candidates at sizes at which they were not timed, from those at which they were, with intervals.

The time of a kernel is that of a micro-kernel by how often it runs: `f_MK × f_spatial` (DietCode, Zheng et al., MLSys 2022).
How often is known at every size: the model of the target counts the rounds of the lowered loops, rests of tiles included. The
other factor, measured over modelled, changes slowly with the size. It is a process over the logarithms of the sizes, with a
mean and a variance of its own for each candidate (kriging with an unknown mean; Rasmussen & Williams, Gaussian Processes for
Machine Learning, 2006, section 2.7). The candidates have one covariance, which all of their times estimate (restricted
likelihood; Patterson & Thompson, Biometrika 1971). Where the work of the sizes predicts the times better than the model, it
takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.tuning.search.gp import Array, Hyper, kernel
from tensorc_dsl.tuning.search.model import INTERVAL

LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""The distances at which ratios may become unlike, in doublings of a size: the likeliest of them counts."""

NOISE = (1e-4, 1e-2, 1e-1)
"""The share of the variance that neighbouring sizes do not have in common, likewise."""

KNOWN = 4
"""For how many sizes the common variance counts beside the own one of a candidate: a model may miss one of them by far."""

REPEATED = 0.01
"""A repeated measurement differs by about this share: no interval is narrower."""


@frozen
class Predicted:
    """Expected seconds, a row for each candidate and a column for each size; and half the width of the interval that has the
    time with probability 0.95, as a share of it."""

    seconds: Array
    within: Array


@frozen
class _Process:
    """The covariance of ratios that is likeliest, with its logarithm."""

    likelihood: float
    hyper: Hyper
    noise: float
    variances: Array
    solved: Array
    """The inverse covariance of the timed sizes, with unit variance."""


def places(sizes: Sequence[Sizes]) -> Array:
    """Sizes as rows of logarithms to base 2; a size of 0 is beside 1."""
    return np.array([[math.log2(max(0.5, n)) for n in x.values()] for x in sizes])


def predict(timed: Array, points: Array, seconds: Array, bases: Sequence[tuple[Array, Array]]) -> Predicted:
    """The seconds of candidates at `points` (p, d), from `seconds` (c, n) at the sizes `timed` (n, d), both by `places`.

    Each of the `bases` has what is known to be proportional to the times, up to a factor that changes slowly: at the timed
    sizes (c, n), and at the points (c, p). The first one that explains the times best is taken. There are two sizes at least.
    """
    logs = np.log(seconds)
    found = [(_likeliest(timed, logs - np.log(there)), there, beyond) for there, beyond in bases]
    process, there, beyond = max(found, key=lambda one: one[0].likelihood)
    ratios = logs - np.log(there)
    cross = kernel(timed, points, process.hyper)
    ones = np.ones(len(timed))
    weight = float(ones @ process.solved @ ones)
    mean = ratios @ process.solved @ ones / weight
    known = process.solved @ cross
    expected = mean[:, None] + (ratios - mean[:, None]) @ known
    apart = 1.0 + process.noise - np.einsum("ij,ij->j", cross, known) + (1.0 - ones @ known) ** 2 / weight
    deviation = np.sqrt(np.outer(process.variances, np.maximum(apart, 0.0)) + REPEATED**2)
    return Predicted(beyond * np.exp(expected), np.expm1(INTERVAL * deviation))


def _likeliest(timed: Array, ratios: Array) -> _Process:
    count, sizes = ratios.shape
    ones = np.ones(sizes)
    every: list[_Process] = []
    for length in LENGTHS:
        hyper = Hyper(np.full(len(timed[0]), math.log(length)), 0.0, 0.0, rough=True)
        for noise in NOISE:
            covariance = kernel(timed, timed, hyper) + noise * np.eye(sizes)
            solved: Array = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
            weight = float(ones @ solved @ ones)
            left = solved - np.outer(solved @ ones, ones @ solved) / weight
            squares: Array = np.einsum("ci,ij,cj->c", ratios, left, ratios)
            # What most candidates vary by is what each is expected to, as if it had been seen at `KNOWN` more sizes.
            common = max(float(np.median(squares)) / (sizes - 1), REPEATED**2)
            variances = (squares + KNOWN * common) / (sizes - 1 + KNOWN)
            _, determinant = np.linalg.slogdet(covariance)
            fits = (sizes - 1) * np.log(variances) + squares / variances
            likelihood = -0.5 * float(fits.sum() + count * (float(determinant) + math.log(weight)))
            every.append(_Process(likelihood, hyper, noise, variances, solved))
    return max(every, key=lambda one: one.likelihood)
