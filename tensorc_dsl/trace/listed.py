"""Distributions over values that are listed, each with a weight."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensorc_dsl.trace.distribution import Decision, Distribution, Plain, pick

if TYPE_CHECKING:
    import numpy as np


class Listed(Distribution):
    """One of some values, with probabilities proportional to `weights`. The support is the values of positive weight."""

    __slots__ = ()
    weights: tuple[float, ...]

    @abstractmethod
    def values_listed(self) -> Sequence[Plain]:
        """A value for each weight, in their order."""

    def support(self) -> list[Plain]:
        """The values of positive weight."""
        return [v for v, w in zip(self.values_listed(), self.weights, strict=True) if w > 0]

    def position(self, decision: Decision) -> int | None:
        """The number of a value in the list; None for one that is not in it. True is not 1."""
        listed = self.values_listed()
        return next((i for i, v in enumerate(listed) if type(v) is type(decision) and v == decision), None)

    def size(self) -> int:
        return sum(w > 0 for w in self.weights)

    def sample(self, rng: np.random.Generator) -> Decision:
        return self.values_listed()[pick(self.weights, rng)]

    def contains(self, decision: Decision) -> bool:
        i = self.position(decision)
        return i is not None and self.weights[i] > 0

    def log_prob(self, decision: Decision) -> float:
        i = self.position(decision)
        if i is None or not self.weights[i] > 0:
            return -math.inf
        return math.log(self.weights[i]) - math.log(math.fsum(self.weights))

    def moves(self, decision: Decision) -> list[Decision]:
        return [v for v in self.support() if not (type(v) is type(decision) and v == decision)]
