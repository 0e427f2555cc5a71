"""Draws: distributions over decisions, as values.

A distribution knows its support, so that every decision (drawn, pinned, replayed or moved) can be held against it, and
says how a decision looks to a model (`features`) and which decisions are its neighbours (`moves`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Decision = int | float | str | bool | tuple[int, ...]
"""A tile's factors, a category's value, or the number of an `either` branch."""


@lru_cache(maxsize=4096)
def _divisors(n: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0] if n < 1 << 44 else [1]
    return tuple(sorted({*small, *(n // d for d in small)}))


@lru_cache(maxsize=1 << 16)
def _count(extent: int, parts: int) -> int:
    """In how many ways `parts` ordered factors make `extent`."""
    if parts == 1:
        return 1
    return sum(_count(extent // d, parts - 1) for d in _divisors(extent))


@lru_cache(maxsize=4096)
def prime_factors(n: int) -> tuple[int, ...]:
    """The distinct primes that divide n, ascending."""
    out: list[int] = []
    p = 2
    while p * p <= n and p < 1 << 22:
        if n % p == 0:
            out.append(p)
            while n % p == 0:
                n //= p
        p += 1
    return (*out, n) if n > 1 else tuple(out)


@dataclass(frozen=True, slots=True)
class PerfectTile:
    """`parts` factors, outermost first, whose product is `extent`; the last is at most `max_innermost`. Uniform."""

    extent: int
    parts: int
    max_innermost: int

    def _innermost(self) -> list[tuple[int, int]]:
        """Each legal innermost factor with the number of ways to make the rest."""
        if self.parts == 1:
            return [(self.extent, 1)] if self.extent <= self.max_innermost else []
        return [
            (d, _count(self.extent // d, self.parts - 1)) for d in _divisors(self.extent) if d <= self.max_innermost
        ]

    def size(self) -> int:
        return sum(n for _, n in self._innermost())

    def sample(self, rng: np.random.Generator) -> Decision:
        """One tiling, each as likely as any other."""
        options = self._innermost()
        out: list[int] = []
        extent, parts = self.extent, self.parts
        while True:
            ticket = int(rng.integers(sum(n for _, n in options)))
            factor = options[-1][0]
            for d, n in options:
                ticket -= n
                if ticket < 0:
                    factor = d
                    break
            out.append(factor)
            extent //= factor
            parts -= 1
            if parts == 0:
                return tuple(reversed(out))
            options = [(extent, 1)] if parts == 1 else [(d, _count(extent // d, parts - 1)) for d in _divisors(extent)]

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, tuple)
            and len(decision) == self.parts
            and all(f >= 1 for f in decision)
            and math.prod(decision) == self.extent
            and decision[-1] <= self.max_innermost
        )

    def log_prob(self, decision: Decision) -> float:
        return -math.log(self.size()) if self.contains(decision) else -math.inf

    def moves(self, decision: Decision) -> list[Decision]:
        """Every tiling that differs by one prime factor moved between two levels."""
        assert isinstance(decision, tuple)
        out: list[Decision] = []
        for source, factor in enumerate(decision):
            for p in prime_factors(factor):
                for sink in range(self.parts):
                    if sink != source:
                        moved = list(decision)
                        moved[source] //= p
                        moved[sink] *= p
                        if self.contains(tuple(moved)):
                            out.append(tuple(moved))
        return out

    def features(self, decision: Decision) -> tuple[float, ...]:
        """log2 of the product of the inner factors at each level, innermost first."""
        assert isinstance(decision, tuple)
        out: list[float] = []
        product = 1
        for f in reversed(decision[1:]):
            product *= f
            out.append(math.log2(product))
        return tuple(out)

    def describe(self, limit: int = 12) -> str:
        """The legal values in words, for messages."""
        if self.size() == 0:
            return f"none: no {self.parts} factor(s) make {self.extent} with the last at most {self.max_innermost}"
        sample = sorted({d for d, _ in self._innermost()})
        shown = ", ".join(map(str, sample[:limit])) + (", …" if len(sample) > limit else "")
        return f"{self.parts} factors with product {self.extent}, the last one of {shown}"


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of `values`, with probabilities proportional to `weights`."""

    values: tuple[int | float | str | bool, ...]
    weights: tuple[float, ...]

    def size(self) -> int:
        return sum(1 for w in self.weights if w > 0)

    def _probabilities(self) -> list[float]:
        total = math.fsum(self.weights)
        return [w / total for w in self.weights]

    def sample(self, rng: np.random.Generator) -> Decision:
        return self.values[_pick(self._probabilities(), rng)]

    def position(self, decision: Decision) -> int | None:
        for i, v in enumerate(self.values):
            if type(v) is type(decision) and v == decision:
                return i
        return None

    def contains(self, decision: Decision) -> bool:
        i = self.position(decision)
        return i is not None and self.weights[i] > 0

    def log_prob(self, decision: Decision) -> float:
        i = self.position(decision)
        return math.log(self._probabilities()[i]) if i is not None and self.weights[i] > 0 else -math.inf

    def moves(self, decision: Decision) -> list[Decision]:
        return [
            v
            for v, w in zip(self.values, self.weights, strict=True)
            if w > 0 and self.position(decision) != self.position(v)
        ]

    def features(self, decision: Decision) -> tuple[float, ...]:
        """One-hot; where all values are numbers, also log2 of 1 + the value, which keeps their order."""
        hot = tuple(1.0 if i == self.position(decision) else 0.0 for i in range(len(self.values)))
        if all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 0 for v in self.values):
            return (*hot, math.log2(1.0 + float(decision)))  # type: ignore[arg-type]
        return hot

    def describe(self, limit: int = 12) -> str:
        shown = [str(v) for v, w in zip(self.values, self.weights, strict=True) if w > 0]
        return "one of " + ", ".join(shown[:limit]) + (", …" if len(shown) > limit else "")


@dataclass(frozen=True, slots=True)
class Branch:
    """Which branch of an `either`: a number from 0, with probabilities proportional to `weights`."""

    weights: tuple[float, ...]

    def size(self) -> int:
        return sum(1 for w in self.weights if w > 0)

    def sample(self, rng: np.random.Generator) -> Decision:
        total = math.fsum(self.weights)
        return _pick([w / total for w in self.weights], rng)

    def contains(self, decision: Decision) -> bool:
        return (
            isinstance(decision, int)
            and not isinstance(decision, bool)
            and 0 <= decision < len(self.weights)
            and self.weights[decision] > 0
        )

    def log_prob(self, decision: Decision) -> float:
        if not self.contains(decision):
            return -math.inf
        assert isinstance(decision, int)
        return math.log(self.weights[decision] / math.fsum(self.weights))

    def moves(self, decision: Decision) -> list[Decision]:
        return [i for i, w in enumerate(self.weights) if w > 0 and i != decision]

    def features(self, decision: Decision) -> tuple[float, ...]:
        return tuple(1.0 if i == decision else 0.0 for i in range(len(self.weights)))

    def describe(self, limit: int = 12) -> str:
        del limit
        return f"a branch from 0 to {len(self.weights) - 1}"


Distribution = PerfectTile | Categorical | Branch


def _pick(probabilities: list[float], rng: np.random.Generator) -> int:
    ticket = float(rng.random())
    for i, p in enumerate(probabilities):
        ticket -= p
        if ticket < 0:
            return i
    return max(i for i, p in enumerate(probabilities) if p > 0)


@dataclass(frozen=True, slots=True)
class Draw:
    """A draw that was made: `pinned` ones were fixed in the text and are no choice of the search's."""

    name: str
    distribution: Distribution
    decision: Decision
    pinned: bool = False
