"""`sample_categorical`: one of some values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.declare import Choices, Offer, draw
from tensorc_dsl.schedule.trace.distribution import Decision, Listed, Plain, literal, one_hot, shortened


@problem("E0503", "`sample_categorical` needs at least one value", help="write [a, b] or {{a: weight, b: weight}}")
def NO_VALUES() -> None: ...
@problem("E0503", "the category {value} is listed twice", help="name each once, with the sum of its weights")
def TWICE(*, value: str) -> None: ...
@problem("E0503", "the weight of {value} is {weight}", help="a weight is a finite number from 0")
def BAD_WEIGHT(*, value: str, weight: float) -> None: ...
@problem("E0503", "every category has weight 0", help="give one of them a positive weight")
def NO_WEIGHT() -> None: ...


@dataclass(frozen=True, slots=True)
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
