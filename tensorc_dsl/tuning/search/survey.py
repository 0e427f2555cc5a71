"""Chooses among listed assignments: a Gaussian process over the features of the draws judges every row in every step.

The first trials lie apart, the first of them in the middle. Then each trial is the row whose expected improvement of the log
speed is the largest (Jones, Schonlau & Welch, Journal of Global Optimization 13, 1998), in logarithms, since most rows
have next to none (Ament et al., NeurIPS 2023). Failures count as slow, and teach where others are likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

from tensorc_dsl.tuning.search.assignments import Assignments
from tensorc_dsl.tuning.search.gp import Array, Hyper, Sweep, fit
from tensorc_dsl.tuning.search.model import RANGE

FIRST = 5
"""Trials that lie apart, before the process chooses."""

AMONG = 512
"""Rows among which each of these is the farthest from those before."""

SCALE = 2.0
"""Features are stretched to this length: a length scale of 1 is then half of what a draw ranges over."""

REFIT = 1.15
"""The hyperparameters are fitted anew once there are so many times the trials of the last fit."""

MOST, TOP = 512, 256
"""A process knows at most about so many trials: the fastest `TOP`, and of the others the latest."""

GROWN = 64
"""A process is made anew after at most so many trials."""

BEST = 3
"""Where not all rows are listed, those beside so many of the fastest are added when a process is made."""


class Survey:
    """What was tried of the assignments, and what to try next."""

    def __init__(self, assignments: Assignments, rng: Callable[[str], np.random.Generator]) -> None:
        """`rng` makes a new random stream for each call."""
        self._assignments = assignments
        self._rng = rng
        self._rows: list[int] = []
        self._speeds: list[float | None] = []
        self._open: NDArray[np.bool_] = np.ones(len(assignments), dtype=bool)
        self._plan: list[int] | None = None
        self._hyper: Hyper | None = None
        self._sweep: Sweep | None = None
        self._known: list[int] = []
        self._fitted = 0

    def taken(self, row: int) -> None:
        """The row is tried, or needs not be."""
        self._widen()
        self._open[row] = False

    def tell(self, row: int, seconds: float | None) -> None:
        """The row took so long; None for a failure."""
        self.taken(row)
        self._rows.append(row)
        self._speeds.append(None if seconds is None else -math.log(seconds))

    def next(self) -> int | None:
        """The row to try next; None if there is none left."""
        if self._plan is None:
            self._plan = self._apart()
        while self._plan:
            if self._open[row := self._plan.pop(0)]:
                return row
        if not self._open.any():
            return None
        if all(s is None for s in self._speeds):
            return int(self._rng("anything").choice(np.flatnonzero(self._open)))
        merit = self._improvement()
        return int(np.argmax(np.where(self._open, merit, -np.inf)))

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

    def _improvement(self) -> Array:
        """The logarithm of the expected improvement of each row, up to a constant."""
        ok = np.array([s is not None for s in self._speeds])
        speeds = np.array([-np.inf if s is None else s for s in self._speeds])
        speeds = np.maximum(speeds, speeds.max() - RANGE)
        speeds = np.where(ok, speeds, speeds[ok].min())
        sweep = self._swept(speeds)
        known = speeds[self._known]
        y = (known - known.mean()) / max(float(known.std()), 1e-3)
        mean, deviation = sweep.mean(y), np.sqrt(np.maximum(sweep.variance, 1e-9))
        return _log_improvement((mean - y[ok[self._known]].max()) / deviation) + np.log(deviation)

    def _swept(self, speeds: Array) -> Sweep:
        """The process over all rows that knows the trials."""
        columns = self._assignments.columns
        made = self._sweep
        if made is None or len(speeds) >= min(REFIT * self._fitted, self._fitted + GROWN):
            if not self._assignments.complete:
                for n in np.argsort(-speeds, kind="stable")[:BEST].tolist():
                    self._assignments.near(self._rows[n])
                self._widen()
                columns = self._assignments.columns
            self._known = _kept(speeds)
            x = SCALE * columns[[self._rows[n] for n in self._known]]
            known = speeds[self._known]
            y = (known - known.mean()) / max(float(known.std()), 1e-3)
            self._hyper = fit(x, y, self._hyper or Hyper.initial(x.shape[1], rough=True), iterations=30)
            self._fitted = len(speeds)
            made = self._sweep = Sweep(SCALE * columns, self._hyper, x)
        for n in range(self._known[-1] + 1, len(speeds)):
            made.add(SCALE * columns[self._rows[n]])
            self._known.append(n)
        return made


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
