"""`sample_permutation`: an order of the elements of a list."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.declare import Items, Offer, draw
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution

if TYPE_CHECKING:
    import numpy as np

MAX_ITEMS = 32


@problem(
    "E0503",
    "`sample_permutation` orders up to {most} elements; these are {count}",
    help="draw the order of at most {most} of them",
)
def TOO_MANY(*, most: int, count: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Permutation(Distribution):
    """An order of `count` elements, as the positions of the elements in the original list. Uniform."""

    count: int

    def size(self) -> int:
        return math.factorial(self.count)

    def sample(self, rng: np.random.Generator) -> Decision:
        return tuple(int(n) for n in rng.permutation(self.count))

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, tuple)
            and all(type(n) is int for n in decision)
            and sorted(decision) == list(range(self.count))
        )

    def log_prob(self, decision: Decision) -> float:
        return -math.lgamma(self.count + 1) if self.contains(decision) else -math.inf

    def moves(self, decision: Decision) -> list[Decision]:
        """Every order in which two elements are swapped."""
        assert isinstance(decision, tuple)
        out: list[Decision] = []
        for i in range(self.count):
            for j in range(i + 1, self.count):
                swapped = list(decision)
                swapped[i], swapped[j] = swapped[j], swapped[i]
                out.append(tuple(swapped))
        return out

    def features(self, decision: Decision) -> tuple[float, ...]:
        """The new position of each element."""
        assert isinstance(decision, tuple)
        return tuple(float(decision.index(n)) for n in range(self.count))

    def describe(self, limit: int = 12) -> str:
        del limit
        if self.count < 2:
            return f"the order {list(range(self.count))}"
        return f"an order of the positions 0 to {self.count - 1}, each once"

    def meaning(self) -> tuple[object, ...]:
        return ("permutation", self.count)


@draw(Items)
def sample_permutation(program: Program, list: Items) -> Offer:
    """The elements of a list, of loops or of other values, in a random order; all orders are equally likely.

    A pin names for each place the position (from 0) of its element: `:= [2, 0, 1]` of `[i, j, k]` is
    `[k, i, j]`. A move swaps two elements.
    """
    del program
    if len(list.values) > MAX_ITEMS:
        raise TschedError(TOO_MANY(None, most=MAX_ITEMS, count=len(list.values)))

    def value(decision: Decision) -> object:
        assert isinstance(decision, tuple)
        return tuple(list.values[n] for n in decision)

    return Offer(Permutation(len(list.values)), value)
