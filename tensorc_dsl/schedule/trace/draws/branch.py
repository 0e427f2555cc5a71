"""The draw of a branch, for `either … or …` and `maybe`. It has no call of its own in the language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.schedule.trace.distribution import Decision, Listed, Plain, literal, one_hot, shortened


@dataclass(frozen=True, slots=True)
class Branch(Listed):
    """A branch, with probabilities proportional to `weights`: one of `names`, or a number from 0 if there are no names."""

    weights: tuple[float, ...]
    names: tuple[str | bool, ...] = ()

    def values_listed(self) -> Sequence[Plain]:
        return self.names or range(len(self.weights))

    def features(self, decision: Decision) -> tuple[float, ...]:
        """A one-hot vector."""
        return one_hot(self.position(decision), len(self.weights))

    def describe(self, limit: int = 12) -> str:
        return "a branch: " + shortened([literal(d) for d in self.support()], limit)

    def meaning(self) -> tuple[object, ...]:
        return ("branch", len(self.weights), self.names)
