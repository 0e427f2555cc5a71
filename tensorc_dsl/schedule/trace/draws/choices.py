"""Draws of one of some values: `sample_categorical`, `sample_int`, `sample_permutation`, and the branch of `either … or …`
and `maybe`, which has no call of its own in the language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import (
    Choices,
    Decision,
    Interval,
    Items,
    Listed,
    Offer,
    Plain,
    Uniform,
    draw,
    is_plain_int,
    literal,
    one_hot,
    shortened,
)

if TYPE_CHECKING:
    import numpy as np


@problem("E0503", "`sample_categorical` needs at least one value", help="write [a, b] or {{a: weight, b: weight}}")
def NO_VALUES() -> None: ...
@problem("E0503", "the category {value} is listed twice", help="name each once, with the sum of its weights")
def TWICE(*, value: str) -> None: ...
@problem("E0503", "the weight of {value} is {weight}", help="a weight is a finite number from 0")
def BAD_WEIGHT(*, value: str, weight: float) -> None: ...
@problem("E0503", "every category has weight 0", help="give one of them a positive weight")
def NO_WEIGHT() -> None: ...


@frozen
class Categorical(Listed):
    """One of `values`, with probabilities proportional to `weights`."""

    values: tuple[Plain, ...]
    weights: tuple[float, ...]

    def values_listed(self) -> tuple[Plain, ...]:
        return self.values

    def features(self, decision: Decision) -> tuple[float, ...]:
        """A one-hot vector; if all values are numbers, also log2 of 1 + the value, which keeps their order."""
        hot = one_hot(self.position(decision), len(self.values))
        if all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < math.inf for v in self.values):
            assert isinstance(decision, int | float)
            return (*hot, math.log2(1 + decision))
        return hot

    def describe(self, limit: int = 12) -> str:
        return "one of " + shortened([literal(v) for v in self.support()], limit)

    def meaning(self) -> tuple[object, ...]:
        return ("category", tuple((type(v).__name__, v) for v in self.values))


@draw(Choices)
def sample_categorical(program: Program, values: Choices) -> Offer:
    """One of the values of a list, all equally likely, or of a map, with probabilities by weight: `{4: 0.2, 8: 0.8}`.

    A value is a number, a string or a bool. A move goes to any other value of positive weight.
    In TVM: `sample_categorical`.
    """
    del program
    if not values.values:
        raise TschedError(NO_VALUES(None))
    seen: set[tuple[type, Plain]] = set()
    for v, w in zip(values.values, values.weights, strict=True):
        if (type(v), v) in seen:
            raise TschedError(TWICE(None, value=literal(v)))
        if not 0 <= w < math.inf:
            raise TschedError(BAD_WEIGHT(None, value=literal(v), weight=w))
        seen.add((type(v), v))
    if not any(values.weights):
        raise TschedError(NO_WEIGHT(None))
    return Offer(Categorical(values.values, values.weights))


# The draw of a branch, for `either … or …` and `maybe`. It has no call of its own in the language.


@frozen
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


# `sample_int`: an integer from a range.


LIMIT = 1 << 62
"""Decisions are recorded as 64-bit numbers."""


@problem("E0503", "the range {low}..{high} is empty", help="the smaller end comes first; both are included")
def EMPTY(*, low: int, high: int) -> None: ...
@problem("E0503", "the range {low}..{high} goes beyond ±2^62", help="choose smaller numbers")
def TOO_LARGE(*, low: int, high: int) -> None: ...


@frozen
class Integer(Uniform):
    """An integer from `low` to `high`, both included."""

    low: int
    high: int

    def size(self) -> int:
        return self.high - self.low + 1

    def sample(self, rng: np.random.Generator) -> Decision:
        return int(rng.integers(self.low, self.high, endpoint=True))

    def contains(self, decision: Decision) -> bool:
        return is_plain_int(decision) and self.low <= decision <= self.high

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


# `sample_permutation`: an order of the elements of a list.


MAX_ITEMS = 32


@problem(
    "E0503",
    "`sample_permutation` orders up to {most} elements; these are {count}",
    help="draw the order of at most {most} of them",
)
def TOO_MANY(*, most: int, count: int) -> None: ...


@frozen
class Permutation(Uniform):
    """An order of `count` elements, as the positions of the elements in the original list: elements may be equal, and some
    have no text on a command line."""

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
