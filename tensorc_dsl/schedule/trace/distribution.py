"""Distributions over decisions, and the declaration of a kind of draw: a name, and a function to a distribution.

A distribution is a value that knows its support, so every decision (drawn, pinned, replayed or moved) can be checked.
It also encodes decisions for a model (`features`) and lists the neighbours of a decision (`moves`). The signature of a draw
in the language, its line in a trace and its reference entry are derived from the declaration, as for primitives. The kinds
of draws are in `draws/`; that package imports all of them."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from tensorc_dsl.base.diagnostic import problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.syntax.format import number, quoted

if TYPE_CHECKING:
    import numpy as np


Plain = int | float | str | bool

Decision = Plain | tuple[int, ...]
"""A decision as records store it: a tile's factors, a category's value, the positions of a permutation, …"""


class Distribution(ABC):
    """Subclasses are frozen dataclasses: two with equal fields are the same distribution."""

    __slots__ = ()

    @abstractmethod
    def size(self) -> int:
        """The number of decisions in the support."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Decision:
        """A random decision, by its probability."""

    @abstractmethod
    def contains(self, decision: Decision) -> bool:
        """Whether the decision is in the support; False for values of other types."""

    @abstractmethod
    def log_prob(self, decision: Decision) -> float:
        """The natural logarithm of its probability; -inf outside of the support."""

    @abstractmethod
    def moves(self, decision: Decision) -> list[Decision]:
        """Its neighbours, without itself; every decision can be reached from every other one by moves."""

    @abstractmethod
    def features(self, decision: Decision) -> tuple[float, ...]:
        """The decision as numbers for a model; the length is the same for all decisions."""

    @abstractmethod
    def describe(self, limit: int = 12) -> str:
        """The legal decisions in words, with at most about `limit` of them listed."""

    @abstractmethod
    def meaning(self) -> tuple[object, ...]:
        """The meaning of the features: draws with the same name and meaning share the columns of a model."""


def below(count: int, rng: np.random.Generator) -> int:
    """A uniform random int from 0 to count - 1, however large `count` is."""
    if count < 1 << 63:
        return int(rng.integers(count))
    bits = count.bit_length()
    while True:
        number = int.from_bytes(rng.bytes((bits + 7) // 8), "little") >> (-bits % 8)
        if number < count:
            return number


def pick(weights: tuple[float, ...], rng: np.random.Generator) -> int:
    """A random position, with probability proportional to its weight; never one of weight 0."""
    ticket = float(rng.random()) * sum(weights)
    for i, w in enumerate(weights):
        ticket -= w
        if ticket < 0:
            return i
    return max(i for i, w in enumerate(weights) if w > 0)


def one_hot(position: int | None, length: int) -> tuple[float, ...]:
    """1 at the position, which may be none, and 0 elsewhere."""
    if position is None:
        return (0.0,) * length
    return (*(0.0,) * position, 1.0, *(0.0,) * (length - position - 1))


def shortened(values: list[str], limit: int) -> str:
    """The values joined by commas, with an ellipsis in place of those beyond `limit`."""
    return ", ".join(values[:limit]) + (", …" if len(values) > limit else "")


def is_plain_int(value: object) -> TypeGuard[int]:
    """Whether the value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def literal(value: Plain) -> str:
    """A plain value as a literal of the language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return f"-{number(-value)}" if value < 0 else number(value)


class Uniform(Distribution):
    """A distribution whose decisions are all equally likely."""

    __slots__ = ()

    def log_prob(self, decision: Decision) -> float:
        return -math.log(self.size()) if self.contains(decision) else -math.inf


# Distributions over values that are listed, each with a weight.


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


# A distribution with other weights for some of its values, as a `prior` item gives them.


@frozen
class Weights:
    """Weights of values; `rest`, above 0, is that of going by the draw's own distribution."""

    listed: tuple[tuple[Decision, float], ...]
    rest: float

    def over(self, own: Distribution) -> Distribution:
        """The distribution with these weights. Values that are not legal here have none; without any it is as it was."""
        legal = tuple((d, w) for d, w in self.listed if own.contains(d) and w > 0)
        return Weighted(own, legal, self.rest) if legal else own


@frozen
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


# The declaration of a kind of draw.


@frozen
class Interval:
    """`lo..hi`: both ends included."""

    low: int
    high: int


@frozen
class Choices:
    """A list of values, or a map from values to their weights."""

    values: tuple[Plain, ...]
    weights: tuple[float, ...]


@frozen
class Items:
    """A list whose elements have one kind, which may be any."""

    values: tuple[Any, ...]


def _same(decision: Decision) -> object:
    return decision


@frozen
class Offer:
    """A distribution, and the function from a decision to its value in the language."""

    distribution: Distribution
    value: Callable[[Decision], object] = _same


@frozen
class DrawKind:
    name: str
    function: Callable[..., Offer]
    signature: inspect.Signature
    """The parameters without the leading `program`; annotations are resolved types."""
    result: object
    """The type of the drawn value. `Choices` stands for an element of the argument, `Items` for a list like it."""
    doc: str


DRAWS: dict[str, DrawKind] = {}
"""All kinds of draws by name, filled by importing `tensorc_dsl.schedule.trace.draws`."""

F = TypeVar("F", bound=Callable[..., Offer])


def draw(result: object) -> Callable[[F], F]:
    """Declare a kind of draw with the name of the function, whose values are of type `result`.

    The function takes the program first, then the arguments in the language. It raises TschedError for arguments that never
    make sense, and ScheduleRefusal if this program leaves nothing to draw.
    """

    def register(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        params = list(signature.parameters.values())[1:]
        name = function.__name__
        if name in DRAWS:
            raise ValueError(f"draw {name!r} is declared twice")
        DRAWS[name] = DrawKind(
            name, function, signature.replace(parameters=params), result, inspect.getdoc(function) or ""
        )
        return function

    return register


@problem("E0503", "`{parameter}` of `{draw}` is {wanted}; this is {found}", help="pass {wanted}")
def BAD_ARGUMENT(*, parameter: str, draw: str, wanted: str, found: object) -> None: ...
