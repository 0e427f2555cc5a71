"""`sample_int`: an integer from a range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.declare import Interval, Offer, draw
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, is_plain_int

if TYPE_CHECKING:
    import numpy as np

LIMIT = 1 << 62
"""Decisions are recorded as 64-bit numbers."""


@problem("E0503", "the range {low}..{high} is empty", help="the smaller end comes first; both are included")
def EMPTY(*, low: int, high: int) -> None: ...
@problem("E0503", "the range {low}..{high} goes beyond ±2^62", help="choose smaller numbers")
def TOO_LARGE(*, low: int, high: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Integer(Distribution):
    """An integer from `low` to `high`, both included. Uniform."""

    low: int
    high: int

    def size(self) -> int:
        return self.high - self.low + 1

    def sample(self, rng: np.random.Generator) -> Decision:
        return int(rng.integers(self.low, self.high, endpoint=True))

    def contains(self, decision: Decision) -> bool:
        return is_plain_int(decision) and self.low <= decision <= self.high

    def log_prob(self, decision: Decision) -> float:
        return -math.log(self.size()) if self.contains(decision) else -math.inf

    def moves(self, decision: Decision) -> list[Decision]:
        """The integers one more, one less, twice and half as large, if they are in the range."""
        assert isinstance(decision, int)
        near = dict.fromkeys((decision - 1, decision + 1, decision * 2, decision // 2))
        return [n for n in near if n != decision and self.contains(n)]

    def features(self, decision: Decision) -> tuple[float, ...]:
        """log2 of 1 + the absolute value, with the sign."""
        assert isinstance(decision, int)
        return (math.copysign(math.log2(1 + abs(decision)), decision),)

    def describe(self, limit: int = 12) -> str:
        del limit
        return f"an int from {self.low} to {self.high}"

    def meaning(self) -> tuple[object, ...]:
        return ("int",)


@draw(int)
def sample_int(program: Program, range: Interval) -> Offer:
    """An integer from a range, both ends included, all equally likely: `sample_int(1..8)`.

    A move adds or subtracts 1, doubles or halves.
    """
    del program
    if range.low > range.high:
        raise TschedError(EMPTY(None, low=range.low, high=range.high))
    if range.low < -LIMIT or range.high > LIMIT:
        raise TschedError(TOO_LARGE(None, low=range.low, high=range.high))
    return Offer(Integer(range.low, range.high))
