"""The interface of distributions over decisions.

A distribution is a value that knows its support, so every decision (drawn, pinned, replayed or moved) can be checked.
It also encodes decisions for a model (`features`) and lists the neighbours of a decision (`moves`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeGuard

from tensorc_dsl.syntax.format_expr import number, quoted

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


def is_int(value: object) -> TypeGuard[int]:
    """Whether the value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def literal(value: Plain) -> str:
    """A plain value as a literal of the language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return f"-{number(-value)}" if value < 0 else number(value)
