"""Chooses among listed assignments: a Gaussian process over the features of the draws judges every row in every step.

The first trials lie apart, the first of them in the middle. Then each trial is the row whose expected improvement of the log
speed is the largest (Jones, Schonlau & Welch, Journal of Global Optimization 13, 1998), in logarithms, since most rows
have next to none (Ament et al., NeurIPS 2023). In turns it is chosen among all rows, and among those that differ from the
fastest in one draw, as annealing walks: there the process is trusted with the order, not with the place. Its deviations
are multiplied by how far it was wrong. Failures count as slow, and teach where others are likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

from tensorc_dsl.tuning.search.assignments import Assignments
from tensorc_dsl.tuning.search.gp import Array, Hyper, Sweep, fit
from tensorc_dsl.tuning.search.model import RANGE, Memory, noise_of
from tensorc_dsl.tuning.search.strategy import Prediction

FIRST = 5
"""Trials that lie apart, before the process chooses."""

AMONG = 512
"""Rows among which each of these is the farthest from those before."""

SCALE = 2.0
"""Features are stretched to this length: a length scale of 1 is then half of what a draw ranges over."""

TURNS = 2
"""Every so many trials are chosen among the rows beside the fastest."""

REFIT = 1.15
"""The hyperparameters are fitted anew once there are so many times the trials of the last fit."""

MOST, TOP = 512, 256
"""A process knows at most about so many trials: the fastest `TOP`, and of the others the latest."""

GROWN = 64
"""A process is made anew after at most so many trials."""

JUDGED, BEST = 1 << 15, 3
"""Of more rows than this, another sample is judged whenever a process is made. To a sample, and where not all rows are
listed, those beside so many of the fastest are added."""


class Survey:
    """What was tried of the assignments, and what to try next."""

    def __init__(self, assignments: Assignments, rng: Callable[[str], np.random.Generator]) -> None:
        """`rng` makes a new random stream for each call."""
        self._assignments = assignments
        self._rng = rng
        self._rows: list[int] = []
        self._speeds: list[float | None] = []
        self._spreads: list[tuple[float, int]] = []
        self._scale = 1.0
        self._open: NDArray[np.bool_] = np.ones(len(assignments), dtype=bool)
        self._plan: list[int] | None = None
        self._hyper: Hyper | None = None
        self._sweep: Sweep | None = None
        self._known: list[int] = []
        self._judged: NDArray[np.intp] = np.arange(0)
        self._around: set[int] = set()
        self._fitted = 0
        self._memory = Memory()
        self._expected: tuple[int, Prediction] | None = None

    def taken(self, row: int) -> None:
        """The row is tried, or needs not be."""
        self._widen()
        self._open[row] = False

    def tell(self, row: int, seconds: float | None, spread: tuple[float, int] = (0.0, 1)) -> None:
        """The row took so long, None for a failure; how much its samples vary, and how many there are."""
        self.taken(row)
        if seconds is not None and self._expected is not None and self._expected[0] == row:
            expected = self._expected[1]
            self._memory.errors.append(expected.error(seconds) / expected.deviation)
        self._rows.append(row)
        self._speeds.append(None if seconds is None else -math.log(seconds))
        self._spreads.append(spread)

    def next(self) -> int | None:
        """The row to try next; None if there is none left."""
        if self._plan is None:
            self._plan = self._apart()
        while self._plan:
            if self._open[row := self._plan.pop(0)]:
                return row
        for tried in self._rows:
            if self._open.any():
                break
            self._assignments.near(tried)  # what is beside it is listed
            self._widen()
        if not self._open.any():
            return None
        if all(s is None for s in self._speeds):
            return int(self._rng("anything").choice(np.flatnonzero(self._open)))
        return self._chosen()

    def _apart(self) -> list[int]:
        """Rows that lie apart: the one nearest to the middle of some, then the farthest from those before."""
        count = len(self._assignments)
        some = self._rng("first").permutation(count)[:AMONG]
        x = self._assignments.columns[some]
        if not len(x):
            return []
        out = [int(np.argmin(((x - self._assignments.columns.mean(0)) ** 2).sum(1)))]
        nearest = ((x - x[out[0]]) ** 2).sum(1)
        while len(out) < min(FIRST, len(some)):
            out.append(int(np.argmax(nearest)))
            nearest = np.minimum(nearest, ((x - x[out[-1]]) ** 2).sum(1))
        return [int(some[n]) for n in out]

    def _widen(self) -> None:
        """Rows may have been listed since."""
        more = len(self._assignments) - len(self._open)
        if more > 0:
            self._open = np.concatenate([self._open, np.ones(more, dtype=bool)])

    def _chosen(self) -> int:
        """The row of the largest expected improvement, among all or in turn among those beside the fastest."""
        ok = np.array([s is not None for s in self._speeds])
        speeds = np.array([-np.inf if s is None else s for s in self._speeds])
        speeds = np.maximum(speeds, speeds.max() - RANGE)
        speeds = np.where(ok, speeds, speeds[ok].min())
        sweep, hyper = self._swept(speeds)
        known = speeds[self._known]
        middle, scale = float(known.mean()), max(float(known.std()), 1e-3)
        mean = sweep.mean((known - middle) / scale)
        deviation = np.sqrt(np.maximum(sweep.variance, 1e-9)) * max(1.0, self._memory.calibration)
        best = (float(speeds[ok].max()) - middle) / scale
        merit = _log_improvement((mean - best) / deviation) + np.log(deviation)
        open_ = self._open[self._judged]
        if len(self._rows) % TURNS == 0:
            beside = np.isin(self._judged, self._assignments.near(self._fastest()[0]))
            self._widen()
            if (beside & open_).any():
                open_ = beside & open_
        if not open_.any():
            self._sweep = None  # what is left is not among the rows that it judges
            return self._chosen()
        place = int(np.argmax(np.where(open_, merit, -np.inf)))
        row = int(self._judged[place])
        spread = math.sqrt(float(sweep.variance[place]) + math.exp(hyper.log_noise))
        self._expected = row, Prediction(middle + scale * float(mean[place]), scale * spread)
        return row

    def _fastest(self) -> list[int]:
        """The fastest rows."""
        slowness = np.array([np.inf if s is None else -s for s in self._speeds])
        order: list[int] = np.argsort(slowness, kind="stable")[:BEST].tolist()
        return [self._rows[n] for n in order]

    def _swept(self, speeds: Array) -> tuple[Sweep, Hyper]:
        """The process over all rows that knows the trials, and its hyperparameters."""
        made, hyper, fastest = self._sweep, self._hyper, self._fastest()
        due = hyper is None or len(speeds) >= min(REFIT * self._fitted, self._fitted + GROWN)
        sampled = not self._assignments.complete or len(self._assignments) > JUDGED
        if made is None or hyper is None or due or (sampled and fastest[0] not in self._around):
            self._judge(fastest, sampled)
            columns = self._assignments.columns
            self._known = _kept(speeds)
            x = SCALE * columns[[self._rows[n] for n in self._known]]
            known = speeds[self._known]
            self._scale = max(float(known.std()), 1e-3)
            noise = noise_of(self._spreads)[self._known] / self._scale**2
            if hyper is None or due:
                y = (known - known.mean()) / self._scale
                start = hyper or Hyper.initial(x.shape[1], rough=True)
                hyper = self._hyper = fit(x, y, start, iterations=30, known=noise)
                self._fitted = len(speeds)
            made = self._sweep = Sweep(SCALE * columns[self._judged], hyper, x, noise)
        columns = self._assignments.columns
        for n in range(self._known[-1] + 1, len(speeds)):
            made.add(SCALE * columns[self._rows[n]], float(noise_of(self._spreads)[n]) / self._scale**2)
            self._known.append(n)
        return made, hyper

    def _judge(self, fastest: list[int], sampled: bool) -> None:
        """Choose the rows that the next process judges."""
        beside = [row for near in map(self._assignments.near, fastest) for row in near] if sampled else []
        self._widen()
        self._around = set(fastest)
        self._judged = np.arange(len(self._assignments))
        if len(self._judged) > JUDGED:
            open_ = np.flatnonzero(self._open)
            some = self._rng("judged").permutation(len(open_))[:JUDGED]
            self._judged = np.union1d(open_[some], np.array(beside, dtype=np.intp))


def _kept(speeds: Array) -> list[int]:
    """The trials that a process knows, in their order."""
    if len(speeds) <= MOST:
        return list(range(len(speeds)))
    fast: set[int] = set(np.argsort(-speeds, kind="stable")[:TOP].tolist())
    others = [n for n in range(len(speeds)) if n not in fast]
    return sorted([*fast, *others[TOP - MOST :]])


def _log_improvement(z: Array) -> Array:
    """The logarithm of the expected excess of a standard normal number over -z."""
    far = np.minimum(z, -25.0)
    near = np.maximum(z, -25.0)
    exact = np.log(near * scipy.special.ndtr(near) + np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi))
    # The first term of the asymptotic series, whose relative error is below 3 / z^2.
    return np.where(z > -25.0, exact, -0.5 * far * far - 2.0 * np.log(-far) - 0.5 * math.log(2 * math.pi))
