"""Predictions from the records of other tasks: a forest over the features of loops, used before the first trial.

The numbers are comparable between shapes and computations, since they are shares, ratios and logarithms. Beside each stands
its distance from the median of the task's own prior draws: what is much for one task is little for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.tuning.records.database import Measured
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.trees import Forest

SLOW = 3.0
"""A program e^3 times as slow as its task's best counts as that slow."""

ROWS = 4000
"""At most so many trials, as many of each task: a long search must not outvote short ones, and a fit takes a second."""

FIRST = 24
"""Trials that stand for a task's prior."""

FEW = 8
"""The least number of trials of a task whose best is used."""

NEAR = 2.0
"""A task counts e times less for each half of a deviation, by root mean square over the columns, between its median and that
of the task that is predicted."""

LEAST = 0.25
"""The least deviation of a column in that, in its own units, which are factors of 2 or shares for the most part."""

FOCUS = 0.5
"""A trial that is e times as slow as its task's best counts e^0.5 times less: slow ones need not be distinguished."""

TREES, SHARE = 150, 0.3
"""Trees of the forest, and the share of the columns that each of them sees."""


@dataclass(frozen=True, slots=True)
class Experience:
    """The trials of one task, in their order: a row of loop features each, and the log speeds; at least one."""

    features: Array
    speeds: Array

    @property
    def median(self) -> Array:
        """That of the first trials, which are draws from the prior for the most part."""
        return np.median(self.features[:FIRST], axis=0)


@dataclass(frozen=True, slots=True)
class Source:
    """Predicts the log speed of a task's candidates relative to the task's best.

    `median` is that of draws from the task's prior.
    """

    forest: Forest
    median: Array

    @staticmethod
    def of(tasks: Sequence[Experience], median: Array) -> Source | None:
        """What these tasks teach of a task with this median; None where there are none."""
        if not tasks:
            return None
        spread = np.maximum(np.vstack([t.features for t in tasks]).std(axis=0), LEAST)
        apart = [float(np.sqrt((((t.median - median) / spread) ** 2).mean())) for t in tasks]
        rows: list[Array] = []
        values: list[Array] = []
        weights: list[Array] = []
        for task, distance in zip(tasks, apart, strict=True):
            picked = np.unique(
                np.linspace(0, len(task.speeds) - 1, min(ROWS // len(tasks) + 1, len(task.speeds))).astype(int)
            )
            value = np.maximum(task.speeds[picked] - task.speeds.max(), -SLOW)
            rows.append(_placed(task.features[picked], task.median))
            values.append(value)
            weights.append(np.exp(FOCUS * value - NEAR * (distance - min(apart))) / np.sqrt(len(picked)))
        w = np.concatenate(weights)
        forest = Forest.fit(
            np.vstack(rows), np.concatenate(values), trees=TREES, share=SHARE, weights=w * len(w) / w.sum()
        )
        return Source(forest, median)

    def predict(self, features: Array) -> Array:
        """Log speeds relative to the best of the task."""
        return self.forest.at(_placed(features, self.median))


def _placed(features: Array, median: Array) -> Array:
    return np.hstack([features, features - median])


def experience(measured: Iterable[Measured]) -> list[Experience]:
    """The trials of other tasks, the latest first, by task; a task with fewer than `FEW` teaches nothing."""
    rows: dict[str, list[Measured]] = {}
    for m in measured:
        rows.setdefault(m.task_key, []).append(m)
    return [
        Experience(np.array([m.features for m in some[::-1]]), -np.log([m.seconds for m in some[::-1]]))
        for some in rows.values()
        if len(some) >= FEW and len({len(m.features) for m in some}) == 1
    ]
