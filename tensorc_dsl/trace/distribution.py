"""What a distribution over decisions is.

A distribution is a value that knows its support, so that every decision (drawn, pinned, replayed or moved) can be held
against it, and says how a decision looks to a model (`features`) and which decisions are its neighbours (`moves`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tensorc_dsl.syntax.format_expr import number, quoted

if TYPE_CHECKING:
    import numpy as np

Plain = int | float | str | bool

Decision = Plain | tuple[int, ...]
"""What was decided, as records keep it: a tile's factors, a category's value, the positions of a permutation, …"""


class Distribution(ABC):
    """Subclasses are frozen dataclasses: two with equal fields are the same distribution."""

    __slots__ = ()

    @abstractmethod
    def size(self) -> int:
        """How many decisions there are."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Decision:
        """A decision with its probability."""

    @abstractmethod
    def contains(self, decision: Decision) -> bool:
        """Whether it can be drawn; False for values of every other kind."""

    @abstractmethod
    def log_prob(self, decision: Decision) -> float:
        """The natural logarithm of its probability; -inf outside the support."""

    @abstractmethod
    def moves(self, decision: Decision) -> list[Decision]:
        """Its neighbours, itself not among them; by moves alone each decision can be reached from each other one."""

    @abstractmethod
    def features(self, decision: Decision) -> tuple[float, ...]:
        """How it looks to a model: as many numbers for one decision as for another."""

    @abstractmethod
    def describe(self, limit: int = 12) -> str:
        """The legal decisions in words, at most about `limit` of them one by one."""

    @abstractmethod
    def meaning(self) -> tuple[object, ...]:
        """What the features stand for: draws of one name and one meaning are the same columns to a model."""


def below(count: int, rng: np.random.Generator) -> int:
    """An int from 0 to count - 1, each equally likely, however large `count` is."""
    if count < 1 << 63:
        return int(rng.integers(count))
    bits = count.bit_length()
    while True:
        number = int.from_bytes(rng.bytes((bits + 7) // 8), "little") >> (-bits % 8)
        if number < count:
            return number


def pick(weights: tuple[float, ...], rng: np.random.Generator) -> int:
    """A position, with probability proportional to its weight; never one of weight 0."""
    ticket = float(rng.random()) * sum(weights)
    for i, w in enumerate(weights):
        ticket -= w
        if ticket < 0:
            return i
    return max(i for i, w in enumerate(weights) if w > 0)


def shortened(values: list[str], limit: int) -> str:
    """The values with commas between them, the last ones as an ellipsis where there are more than `limit`."""
    return ", ".join(values[:limit]) + (", …" if len(values) > limit else "")


def is_int(value: object) -> bool:
    """Whether it is an int and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def literal(value: Plain) -> str:
    """A plain value as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return f"-{number(-value)}" if value < 0 else number(value)
