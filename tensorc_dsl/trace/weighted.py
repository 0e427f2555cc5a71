"""A distribution with other weights for some of its values, as a `prior` item gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.trace.distribution import Decision, Distribution, pick

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of values; `rest`, above 0, is that of going by the draw's own distribution."""

    listed: tuple[tuple[Decision, float], ...]
    rest: float

    def over(self, own: Distribution) -> Distribution:
        """The distribution with these weights. Values that are not legal here have none; without any it is as it was."""
        legal = tuple((d, w) for d, w in self.listed if own.contains(d) and w > 0)
        return Weighted(own, legal, self.rest) if legal else own


@dataclass(frozen=True, slots=True)
class Weighted(Distribution):
    """A value of `listed` with a probability proportional to its weight, else, with that of `rest`, one of `own`.

    The support is that of `own`, and so is all but the probabilities.
    """

    own: Distribution
    listed: tuple[tuple[Decision, float], ...]
    rest: float

    def size(self) -> int:
        return self.own.size()

    def sample(self, rng: np.random.Generator) -> Decision:
        n = pick((*(w for _, w in self.listed), self.rest), rng)
        return self.listed[n][0] if n < len(self.listed) else self.own.sample(rng)

    def contains(self, decision: Decision) -> bool:
        return self.own.contains(decision)

    def log_prob(self, decision: Decision) -> float:
        if not self.contains(decision):
            return -math.inf
        weight = math.fsum(w for d, w in self.listed if type(d) is type(decision) and d == decision)
        total = math.log(math.fsum((*(w for _, w in self.listed), self.rest)))
        # In logarithms: the probability of one of very many values may be too small for a float.
        ordinary = math.log(self.rest) + self.own.log_prob(decision) - total
        if not weight:
            return ordinary
        listed = math.log(weight) - total
        return max(listed, ordinary) + math.log1p(math.exp(-abs(listed - ordinary)))

    def moves(self, decision: Decision) -> list[Decision]:
        return self.own.moves(decision)

    def features(self, decision: Decision) -> tuple[float, ...]:
        return self.own.features(decision)

    def describe(self, limit: int = 12) -> str:
        return self.own.describe(limit)

    def meaning(self) -> tuple[object, ...]:
        return self.own.meaning()
