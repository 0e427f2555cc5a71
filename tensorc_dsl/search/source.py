"""What the records of other tasks say of a candidate: a forest over the numbers of its loops, before the first trial.

The numbers are comparable between shapes and computations, since they are shares, ratios and logarithms. Beside each stands
its distance from the median of the task's own prior draws: what is much for one task is little for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.trees import Forest

SLOW = 3.0
"""A program e^3 times as slow as its task's best counts as that slow."""

ROWS = 600
"""At most so many trials of one task, evenly taken: a long search must not outvote short ones."""

TREES = 150


@dataclass(frozen=True, slots=True)
class Experience:
    """The trials of one task: a row of loop features each, and the log speeds; at least one."""

    features: Array
    speeds: Array


@dataclass(frozen=True, slots=True)
class Source:
    """Predicts log speed relative to a task's best, for any task."""

    forest: Forest

    @staticmethod
    def of(tasks: Sequence[Experience]) -> Source | None:
        """What these tasks teach; None where there are none."""
        if not tasks:
            return None
        rows: list[Array] = []
        values: list[Array] = []
        weights: list[Array] = []
        for task in tasks:
            picked = np.unique(np.linspace(0, len(task.speeds) - 1, min(ROWS, len(task.speeds))).astype(int))
            rows.append(_placed(task.features[picked], np.median(task.features, 0)))
            values.append(np.maximum(task.speeds[picked] - task.speeds.max(), -SLOW))
            weights.append(np.full(len(picked), 1.0 / np.sqrt(len(picked))))
        w = np.concatenate(weights)
        return Source(Forest.fit(np.vstack(rows), np.concatenate(values), trees=TREES, weights=w * len(w) / w.sum()))

    def predict(self, features: Array, median: Array) -> Array:
        """Log speeds relative to the best of their task; `median` is that of draws from the task's prior."""
        return self.forest.at(_placed(features, median))


def _placed(features: Array, median: Array) -> Array:
    return np.hstack([features, features - median])
