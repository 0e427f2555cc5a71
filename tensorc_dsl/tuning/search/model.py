"""The surrogate models of a search. A Gaussian process has the speed of candidates from the features of their draws, and the
chance that they fail; gradient-boosted regression trees on binned features rank very many (Friedman, Annals of Statistics
29, 2001; the binning of LightGBM).

A forest is a sum of trees of one depth, each fitted to the residuals of those before it. Features need no scaling; only the
order of the values of a column counts. Fitting is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.trace.distribution import Distribution
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.search.gp import Array, Beliefs, Hyper, Posterior, fit, kernel

Bins = NDArray[np.uint8]
Nodes = NDArray[np.intp]

BINS = 32
"""The most ranges of values of a feature that are distinguished."""


@frozen
class _Tree:
    """Splits by level: node n of a level goes to 2n where the feature's bin is at most the threshold, else to 2n + 1."""

    features: tuple[Nodes, ...]
    thresholds: tuple[Nodes, ...]
    leaves: Array

    def over(self, columns: Nodes) -> _Tree:
        """The tree over all columns, grown on some of them."""
        return _Tree(tuple(columns[f] for f in self.features), self.thresholds, self.leaves)

    def at(self, bins: Bins) -> Array:
        rows = np.arange(len(bins))
        node = np.zeros(len(bins), dtype=np.intp)
        for feature, threshold in zip(self.features, self.thresholds, strict=True):
            node = 2 * node + (bins[rows, feature[node]] > threshold[node])
        return self.leaves[node]


@frozen
class Forest:
    """Boosted trees, fitted by `Forest.fit`."""

    edges: tuple[Array, ...]
    base: float
    rate: float
    trees: tuple[_Tree, ...]

    @staticmethod
    def fit(
        x: Array,
        y: Array,
        *,
        trees: int = 80,
        depth: int = 4,
        rate: float = 0.15,
        shrink: float = 1.0,
        share: float = 1.0,
        weights: Array | None = None,
    ) -> Forest:
        """Trees for rows of features `x` (n, d) and values `y` (n), by squared error.

        `shrink` is the L2 penalty on the values of the leaves, in rows. Each tree is grown on a random `share` of the
        columns. `weights` are those of the rows, 1 by default.
        """
        edges = _edges(x)
        bins = _binned(x, edges)
        w = np.ones(len(y)) if weights is None else weights
        base = float((w * y).sum() / w.sum())
        left = y - base
        grown: list[_Tree] = []
        rng = np.random.Generator(np.random.Philox(key=0))
        first: dict[bytes, int] = {}
        group = np.array([first.setdefault(c.tobytes(), n) for n, c in enumerate(np.ascontiguousarray(bins.T))])
        cells: _Cells | None = None
        for _ in range(trees if x.shape[1] else 0):
            if cells is None or share < 1.0:
                columns = np.sort(rng.permutation(x.shape[1])[: max(1, round(share * x.shape[1]))])
                # Of equal columns the first would be chosen. Many are: draws of one branch are made together, or not at all.
                columns = columns[np.sort(np.unique(group[columns], return_index=True)[1])]
                cells = _Cells.of(bins, columns, w)
            tree, leaf = _grow(cells, left, w, depth, shrink)
            left = left - rate * tree.leaves[leaf]
            grown.append(tree.over(cells.columns))
        return Forest(edges, base, rate, tuple(grown))

    def at(self, x: Array) -> Array:
        """The values of rows of features."""
        bins = _binned(x, self.edges)
        return self.base + self.rate * sum((t.at(bins) for t in self.trees), np.zeros(len(x)))


def _edges(x: Array) -> tuple[Array, ...]:
    """Of each column, midway between neighbouring values, or between quantiles where there are many."""
    ordered = np.sort(x, axis=0)
    place = np.linspace(0, len(x) - 1, BINS)
    below = place.astype(np.intp)
    above, part = np.minimum(below + 1, len(x) - 1), (place - below)[:, None]
    quantiles = ordered[below] + part * (ordered[above] - ordered[below])
    new = np.diff(ordered, axis=0, prepend=-np.inf) > 0
    out: list[Array] = []
    for column, first, some in zip(ordered.T, new.T, quantiles.T, strict=True):
        values = np.unique(some) if np.count_nonzero(first) > BINS else column[first]
        out.append((values[1:] + values[:-1]) / 2)
    return tuple(out)


def _binned(x: Array, edges: tuple[Array, ...]) -> Bins:
    out = np.empty(x.shape, dtype=np.uint8)
    for j, e in enumerate(edges):
        out[:, j] = np.searchsorted(e, x[:, j])
    return out


NOTHING = 1e-9
"""A weight below this is none: what remains of a sum from which its parts were taken is not quite 0."""


@frozen
class _Cells:
    """What trees over the same columns have in common: their bins; a number for each value of a column, `most` for each, by
    row and column; and the sum of the weights of the rows with each."""

    columns: Nodes
    bins: Bins
    most: int
    numbers: Nodes
    weights: Array

    @staticmethod
    def of(bins: Bins, columns: Nodes, w: Array) -> _Cells:
        """The cells of these columns of all bins."""
        some, width = bins[:, columns], len(columns)
        most = int(some.max(initial=0)) + 1
        numbers: Nodes = some.astype(np.intp) + most * np.arange(width, dtype=np.intp)
        return _Cells(columns, some, most, numbers, _sums(numbers, w, width * most))


def _sums(numbers: Nodes, x: Array, size: int) -> Array:
    """The sums of the values of rows by the numbers that each row has, of so many numbers."""
    found = np.bincount(numbers.reshape(-1), np.repeat(x, numbers.shape[1]), size)
    return found.astype(np.float64, copy=False)


def _grow(cells: _Cells, left: Array, w: Array, depth: int, shrink: float) -> tuple[_Tree, Nodes]:
    """A tree, and the leaf of each row.

    Of the two nodes that a split makes only the rows of the smaller one are counted: the other has the rest (LightGBM, Ke et
    al., NIPS 2017, section 2.1).
    """
    bins, most = cells.bins, cells.most
    count, width = bins.shape
    size = width * most
    node = np.zeros(count, dtype=np.intp)
    both = np.stack([w * left, w])

    def counted(rows: Nodes, of: Nodes, nodes: int) -> Array:
        """Sums of values and of weights by node, feature and value."""
        where: Nodes = cells.numbers[rows] + (of * size)[:, None]
        return np.array([_sums(where, x[rows], nodes * size) for x in both]).reshape(2, nodes, -1)

    found: Array = np.array([_sums(cells.numbers, both[0], size), cells.weights])[:, None]
    features: list[Nodes] = []
    thresholds: list[Nodes] = []
    for level in range(depth):
        nodes = 1 << level
        if level:
            smaller: Nodes = (np.bincount(node, minlength=nodes).reshape(-1, 2).argmin(1)).astype(np.intp)
            above: Nodes = node >> 1
            rows: Nodes = np.flatnonzero((node & 1) == smaller[above])
            fewer = counted(rows, above[rows], nodes // 2)
            split = np.stack([fewer, found - fewer], axis=2)
            found = np.where((smaller == 0)[:, None, None], split, split[:, :, ::-1]).reshape(2, nodes, -1)
        low, low_count = found.reshape(2, nodes, width, most).cumsum(3)
        total, total_count = low[:, :, -1:], low_count[:, :, -1:]
        # Twice the fall of the squared error, after Chen & Guestrin (KDD 2016), eq. 7, for squared loss.
        gain = low**2 / (low_count + shrink) + (total - low) ** 2 / (total_count - low_count + shrink)
        gain = np.where((low_count > NOTHING) & (low_count < total_count - NOTHING), gain, -np.inf).reshape(nodes, -1)
        best = gain.argmax(1)
        feature, threshold = best // most, best % most
        features.append(feature)
        thresholds.append(threshold)
        node = 2 * node + (bins[np.arange(count), feature[node]] > threshold[node])
    leaves = np.bincount(node, both[0], 1 << depth) / (np.bincount(node, w, 1 << depth) + shrink)
    return _Tree(tuple(features), tuple(thresholds), leaves), node


# Encodes traces as vectors: the features of each open draw, and a bit for whether the draw was made.
#
# Features come from the draws alone, so a candidate can be ranked before it is expanded. The distribution of a draw defines
# its encoding (`Distribution.features`): tiles are log2 of cumulative inner products, not an index into a sorted list,
# whose neighbours need not behave alike on the machine.


class Layout:
    """Which columns belong to which draw. Columns are added as draws are met, in order, and never move."""

    def __init__(self) -> None:
        self._columns: dict[tuple[str, tuple[object, ...]], tuple[int, int]] = {}
        self.width = 0

    def columns(self, name: str, distribution: Distribution, length: int) -> tuple[int, int]:
        """First and last-plus-one column of a draw with `length` features; the first one is its activity bit."""
        slot = (name, distribution.meaning())
        if slot not in self._columns:
            self._columns[slot] = (self.width, self.width + 1 + length)
            self.width += 1 + length
        return self._columns[slot]

    def vector(self, trace: Trace) -> Array:
        """The trace's features; columns of draws that it did not make are 0. Later draws may make vectors longer."""
        return self.of_draws(trace.open_draws)

    def of_draws(self, draws: Iterable[Draw]) -> Array:
        """As `vector`, for the draws of a schedule that need not be expanded."""
        parts: list[tuple[int, tuple[float, ...]]] = []
        for d in draws:
            values = d.distribution.features(d.decision)
            parts.append((self.columns(d.name, d.distribution, len(values))[0], values))
        out = np.zeros(self.width)
        for start, values in parts:
            out[start] = 1.0
            out[start + 1 : start + 1 + len(values)] = values
        return out

    def matrix(self, vectors: list[Array]) -> Array:
        """Vectors of different ages as rows of one matrix, the missing columns 0."""
        out = np.zeros((len(vectors), self.width))
        for row, v in zip(out, vectors, strict=True):
            row[: len(v)] = v
        return out


@frozen
class Scaler:
    """Standardizes the columns that vary among the given rows and drops the others."""

    kept: np.ndarray[tuple[int], np.dtype[np.intp]]
    mean: Array
    deviation: Array

    @staticmethod
    def of(rows: Array) -> Scaler:
        deviation = rows.std(0)
        kept = np.flatnonzero(deviation > 1e-9)
        return Scaler(kept, rows[:, kept].mean(0), deviation[kept])

    def __call__(self, rows: Array) -> Array:
        return (rows[:, self.kept] - self.mean) / self.deviation


# The surrogate model of a search: the speed of candidates, how sure that is, and the probability that they fail.
#
# "RW" is Rasmussen & Williams, Gaussian Processes for Machine Learning (2006).


RANGE = math.log(20.0)
"""Speeds below a twentieth of the best count as a twentieth: how bad a bad one is must not shape the model."""

FAILURES = 3
"""With fewer failures than this the classifier stays silent."""

MOST, TOP = 320, 160
"""A process is fitted to at most so many trials: the fastest `TOP`, and of the others the latest. So its cost is bounded,
whatever the length of the search (Rocke's runs have 20,000 trials)."""

REFIT = 1.2
"""Hyperparameters are fitted anew once there are so many times the trials of the last fit; between, they are kept."""

SAMPLES = 8
"""From so many samples of a time on, their own quartiles say how much they vary."""

INTERVAL = 1.96
"""Deviations to either side between which a normal value lies with probability 0.95."""

ESTIMATED = 4
"""Numbers that the trials estimate beside those of columns: the mean, the scale, the noise and the share of the prior."""

SLOPES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""How much of the prediction from other tasks may be taken as the mean: the one that predicts the trials best counts."""


@dataclass(slots=True)
class Fitting:
    """The hyperparameters of the last fit, with length scales by column, and how many trials there were."""

    lengths: dict[int, float] = field(default_factory=dict[int, float])
    signal: float = 0.0
    noise: float = math.log(2e-2)
    trials: int = 0

    def known(self, scaler: Scaler) -> Hyper:
        """The hyperparameters, those of the prior for columns that are new."""
        start = Hyper.initial(len(scaler.kept))
        columns = map(int, scaler.kept)
        lengths = np.array([self.lengths.get(c, float(s)) for c, s in zip(columns, start.log_lengths, strict=True)])
        return Hyper(lengths, self.signal, self.noise)

    def of(self, x: Array, y: Array, scaler: Scaler, trials: int, known: Array | float = 0.0) -> Hyper:
        """The hyperparameters for these rows and values, when there are so many trials: fitted if these are `REFIT` times as
        many as at the last fit. `known` is the measured part of each value's noise."""
        hyper = self.known(scaler)
        if trials < REFIT * self.trials:
            return hyper
        hyper = fit(x, y, hyper, iterations=20 if self.trials else 60, known=known)
        self.lengths.update(zip(map(int, scaler.kept), map(float, hyper.log_lengths), strict=True))
        self.signal, self.noise, self.trials = hyper.log_signal, hyper.log_noise, trials
        return hyper


@dataclass(slots=True)
class Memory:
    """What one model leaves for the next."""

    speed: Fitting = field(default_factory=Fitting)
    works: Fitting = field(default_factory=Fitting)
    errors: list[float] = field(default_factory=list[float])
    """Errors of predictions, made before the trial, in their own deviations."""

    intervals: int = 0
    held: int = 0
    """How many trials were predicted with an interval for 95 %, and how many of them were in theirs."""

    def missed(self, error: float, model: Model) -> None:
        """A trial differed from the model's prediction by so many calibrated deviations."""
        self.errors.append(error * model.calibration)
        self.intervals += 1
        self.held += abs(error) <= INTERVAL

    @property
    def calibration(self) -> float:
        """What deviations have to be multiplied by so that errors are as large as they say: root mean square, from the last
        64, held to 1 by the weight of 8."""
        last = self.errors[-64:]
        return math.sqrt((8.0 + sum(min(e * e, 25.0) for e in last)) / (8.0 + len(last)))

    @property
    def optimism(self) -> float:
        """What deviations to the fast side have to be multiplied by; it is less, since machines have roofs: root mean square
        of such errors, of which half are expected, held to 1/2 by the weight of 8."""
        last = self.errors[-64:]
        return math.sqrt((8.0 * 0.25 + sum(min(e, 5.0) ** 2 for e in last if e > 0)) / (8.0 + 0.5 * len(last)))


@frozen
class Model:
    """Beliefs about candidates with the given features, in log speed.

    The mean of the process is `base + slope * prior`, where `prior` is the prediction from other tasks (0 without any).
    `deviation` is that of a standardized value in log speed. Stated deviations are `widening` times as large, since what few
    trials estimate is uncertain itself. `works` is None while there are too few failures to learn from.
    """

    scaler: Scaler
    posterior: Posterior
    base: float
    slope: float
    deviation: float
    calibration: float
    widening: float
    works: _Works | None

    @staticmethod
    def of(rows: Array, seconds: list[float | None], prior: Array, memory: Memory, noise: Array | None = None) -> Model:
        """The model after these trials: of each a row of features, a time, what other tasks predicted, and how large the
        variance of its log speed is by its samples (`noise_of`).

        The time of a failure is None; at least one has a time.
        """
        good = np.array([s is not None for s in seconds])
        speed = np.array([-math.log(s) for s in seconds if s is not None])
        speed = np.maximum(speed, speed.max() - RANGE)
        kept = _local(speed)
        near = rows[np.flatnonzero(good)[kept]]
        scaler = Scaler.of(near)
        x = scaler(near)
        measured = np.zeros(len(kept)) if noise is None else noise[good][kept]
        hyper = memory.speed.known(scaler)
        latent, noisy = kernel(x, x, hyper), math.exp(hyper.log_noise)
        slope = _slope(latent, speed[kept], prior[good][kept], noisy + measured / max(float(speed.var()), 1e-6))
        left = speed - slope * prior[good]
        base, deviation = float(left.mean()), max(float(left.std()), 1e-3)
        y = (left[kept] - base) / deviation
        known = measured / deviation**2
        # The scales are those of all trials: what a search states stays wide.
        more = _disturbed(latent, y, noisy + known)
        hyper = memory.speed.of(x, y, scaler, len(speed), known)
        works = _Works.of(rows, good, memory.works) if len(good) - good.sum() >= FAILURES else None
        widening = _widening(len(kept))
        return Model(
            scaler, Posterior.of(x, y, hyper, known + more), base, slope, deviation, memory.calibration, widening, works
        )

    def beliefs(self, rows: Array, prior: Array) -> Beliefs:
        """Mean and variance of the log speed of each row, in deviations, the prior's part included."""
        found = self.posterior.at(self.scaler(rows))
        return found.shifted((self.base + self.slope * prior) / self.deviation)

    def log_speed(self, rows: Array, prior: Array) -> tuple[Array, Array]:
        """Means and calibrated deviations of the log speed, noise of a measurement included."""
        found = self.beliefs(rows, prior)
        spread = np.sqrt(found.variance + math.exp(self.posterior.hyper.log_noise))
        return found.mean * self.deviation, spread * self.deviation * self.calibration * self.widening

    def log_feasible(self, rows: Array) -> Array:
        """Log probability that each row compiles, runs and is right; 0 while there is little to go by."""
        return np.zeros(len(rows)) if self.works is None else self.works.log_probability(rows)


@frozen
class _Works:
    """Least-squares classification, squashed by the normal distribution function (RW section 6.5 and eq. 6.42).

    A regression on +1 (valid) and -1 (failed), standardized; `even` is the value midway between.
    """

    scaler: Scaler
    posterior: Posterior
    even: float

    @staticmethod
    def of(rows: Array, good: NDArray[np.bool_], fitting: Fitting) -> _Works:
        trials = len(rows)
        rows, label = rows[-MOST:], np.where(good[-MOST:], 1.0, -1.0)
        mean, deviation = float(label.mean()), max(float(label.std()), 1e-3)
        scaler = Scaler.of(rows)
        x, z = scaler(rows), (label - mean) / deviation
        return _Works(scaler, Posterior.of(x, z, fitting.of(x, z, scaler, trials)), -mean / deviation)

    def log_probability(self, rows: Array) -> Array:
        beliefs = self.posterior.at(self.scaler(rows))
        spread = np.sqrt(beliefs.variance + math.exp(self.posterior.hyper.log_noise))
        return scipy.special.log_ndtr((beliefs.mean - self.even) / spread)


def _widening(trials: int) -> float:
    """How much wider an interval for 95 % is if so many trials estimate it: Student's over the normal distribution's."""
    return float(scipy.special.stdtrit(max(1, trials - ESTIMATED), 0.975)) / INTERVAL


def noise_of(spreads: Sequence[tuple[float, int]]) -> Array:
    """The variance of each trial's log speed by its samples: of their lower quartile, from their quartiles and their number.

    The variance of a quantile p is p (1 - p) / (n f^2), f the density there (Cramér, Mathematical Methods of Statistics,
    1946, 28.5); for a normal distribution that is nearly the square of the interquartile range over n. The spread of few
    samples says little: those of the other trials are taken for it where they are larger.
    """
    spread, count = np.array(spreads, dtype=np.float64).reshape(-1, 2).T
    many = spread[count >= SAMPLES]
    typical = float(np.median(many)) if len(many) else 0.0
    return np.where(count >= SAMPLES, spread, np.maximum(spread, typical)) ** 2 / np.maximum(count, 1.0)


def _slope(latent: Array, speed: Array, prior: Array, noise: Array) -> float:
    """The share of the prior with which trials are predicted best by the other trials (RW section 5.4.2, eq. 5.12), whose
    covariances are `latent`, and the variances of their noise `noise`.

    The mean size of what is missed counts, since a few disturbed trials would decide a mean square. A prior from other tasks
    that is wrong here loses its say as trials come in.
    """
    if float(prior.std()) < 1e-9:
        return 0.0
    inverse = np.linalg.inv(latent + np.diag(noise))
    errors: list[float] = []
    for slope in SLOPES:
        left = speed - slope * prior
        y = left - left.mean()
        missed = (inverse @ y) / np.diag(inverse)
        errors.append(float(np.abs(missed).mean()))
    return SLOPES[int(np.argmin(errors))]


CONTRADICTED, LOOKS = 2.0, 2
"""A trial that is slower than the others predict by so many deviations was disturbed, or is one of a kind: it says little of
the others. So often this is asked, as one such trial hides another."""


def _disturbed(latent: Array, y: Array, noise: Array) -> Array:
    """What is added to the variance of each value's noise since the other values contradict it: as much as it is missed by
    (RW eq. 5.12), so that it is no surprise any more. Other work on a machine only makes a trial slower.

    So the noise has a long tail to one side, as a mixture of normal distributions (Lange, Little & Taylor, Journal of the
    American Statistical Association 84, 1989).
    """
    more = np.zeros(len(y))
    for _ in range(LOOKS):
        inverse = np.linalg.inv(latent + np.diag(noise + more))
        missed = (inverse @ y) / np.diag(inverse)
        far = missed < -CONTRADICTED / np.sqrt(np.diag(inverse))
        before, more = more, np.where(far, np.maximum(more, missed**2), more)
        if np.array_equal(before, more):  # as at the next look
            break
    return more


def _local(speed: Array) -> NDArray[np.intp]:
    """The trials that a process is fitted to, in their order."""
    if len(speed) <= MOST:
        return np.arange(len(speed))
    fast = np.argsort(-speed, kind="stable")[:TOP]
    others = np.setdiff1d(np.arange(len(speed)), fast)
    return np.union1d(fast, others[len(fast) - MOST :])
