"""The draw behind `either … or …`: which branch. It has no call of its own in the language."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.trace.distribution import Decision, Distribution, is_int, pick, shortened

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Branch(Distribution):
    """Which branch of an `either`: a number from 0, with probabilities proportional to `weights`."""

    weights: tuple[float, ...]

    def _open(self) -> list[int]:
        return [i for i, w in enumerate(self.weights) if w > 0]

    def size(self) -> int:
        return len(self._open())

    def sample(self, rng: np.random.Generator) -> Decision:
        return pick(self.weights, rng)

    def contains(self, decision: Decision) -> bool:
        return is_int(decision) and decision in self._open()

    def log_prob(self, decision: Decision) -> float:
        if not self.contains(decision):
            return -math.inf
        assert isinstance(decision, int)
        return math.log(self.weights[decision]) - math.log(math.fsum(self.weights))

    def moves(self, decision: Decision) -> list[Decision]:
        return [i for i in self._open() if i != decision]

    def features(self, decision: Decision) -> tuple[float, ...]:
        """One-hot."""
        return tuple(1.0 if i == decision else 0.0 for i in range(len(self.weights)))

    def describe(self, limit: int = 12) -> str:
        return "a branch: " + shortened([str(i) for i in self._open()], limit)

    def meaning(self) -> tuple[object, ...]:
        return ("branch", len(self.weights))
