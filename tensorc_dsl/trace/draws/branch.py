"""The draw of a branch, for `either … or …` and `maybe`. It has no call of its own in the language."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.trace.distribution import Decision, Distribution, Plain, literal, one_hot, pick, shortened

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Branch(Distribution):
    """A branch, with probabilities proportional to `weights`: one of `names`, or a number from 0 if there are no names."""

    weights: tuple[float, ...]
    names: tuple[str | bool, ...] = ()

    def _all(self) -> list[tuple[Plain, float]]:
        return [*zip(self.names or range(len(self.weights)), self.weights, strict=True)]

    def _open(self) -> list[Plain]:
        return [d for d, w in self._all() if w > 0]

    def position(self, decision: Decision) -> int | None:
        """The number of the branch for a decision; None for values outside of the support. True is not 1."""
        return next((i for i, (d, _) in enumerate(self._all()) if type(d) is type(decision) and d == decision), None)

    def size(self) -> int:
        return len(self._open())

    def sample(self, rng: np.random.Generator) -> Decision:
        return self._all()[pick(self.weights, rng)][0]

    def contains(self, decision: Decision) -> bool:
        i = self.position(decision)
        return i is not None and self.weights[i] > 0

    def log_prob(self, decision: Decision) -> float:
        i = self.position(decision)
        if i is None or not self.weights[i] > 0:
            return -math.inf
        return math.log(self.weights[i]) - math.log(math.fsum(self.weights))

    def moves(self, decision: Decision) -> list[Decision]:
        return [d for d in self._open() if d != decision]

    def features(self, decision: Decision) -> tuple[float, ...]:
        """A one-hot vector."""
        return one_hot(self.position(decision), len(self.weights))

    def describe(self, limit: int = 12) -> str:
        return "a branch: " + shortened([literal(d) for d in self._open()], limit)

    def meaning(self) -> tuple[object, ...]:
        return ("branch", len(self.weights), self.names)
