"""Factors within limits: tiles for which the products of some factors are bounded.

The lists of such factors are numbered in lexicographic order, by counting the lists with each prefix. So a uniform random
number gives a uniform random list, however few there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.trace.declare import BAD_ARGUMENT, Interval
from tensorc_dsl.trace.factors import Factors


@dataclass(frozen=True, slots=True)
class Limit:
    """The product of the factors at `levels`, numbers from 0 in ascending order, is from `low` to `high`."""

    levels: tuple[int, ...]
    low: int
    high: int

    def holds(self, factors: Factors) -> bool:
        return self.low <= math.prod(factors[n] for n in self.levels) <= self.high

    def describe(self, first: int = 0) -> str:
        """The limit in words; the first factor has the number `first`."""
        which = " * ".join(str(n + first) for n in self.levels)
        return f"number{'s' * (len(self.levels) > 1)} {which} from {self.low} to {self.high}"


def limits_of(
    draw: str, numbers: range, levels: Sequence[Sequence[int]], within: Sequence[Interval]
) -> tuple[Limit, ...]:
    """The limits in the arguments `levels` and `within` of a draw, whose factors have these `numbers`.

    Raises TschedError if they make no sense.
    """
    wrong = next((x for x in levels if not x or len(set(x)) < len(x) or not set(x) <= set(numbers)), None)
    if wrong is not None:
        wanted = f"lists of numbers from {numbers.start} to {numbers.stop - 1}, none of them twice"
        raise TschedError(BAD_ARGUMENT(None, parameter="levels", draw=draw, wanted=wanted, found=list(wrong)))
    if len(levels) != len(within):
        wanted = f"a list of {len(levels)} ranges, one for each of `levels`"
        raise TschedError(
            BAD_ARGUMENT(None, parameter="within", draw=draw, wanted=wanted, found=f"one of {len(within)}")
        )
    places = (tuple(sorted(n - numbers.start for n in x)) for x in levels)
    return tuple(Limit(at, r.low, r.high) for at, r in zip(places, within, strict=True))


Options = Callable[[int, int], Sequence[int]]
"""The possible next factors, ascending, given the remaining product and the number of further factors."""


@dataclass(frozen=True, slots=True)
class Family:
    """All lists of `count` factors from `options`, with a product of at most `most`, within the limits."""

    options: Options
    count: int
    most: int
    limits: tuple[Limit, ...]

    def size(self) -> int:
        """The number of lists."""
        return _size(self.options, self.count, self.most, _known(self.limits, self.most))

    def at(self, number: int) -> Factors:
        """The list number `number`, counted from 0."""
        out: list[int] = []
        left, limits = self.most, _known(self.limits, self.most)
        for others in reversed(range(self.count)):
            for n in self.options(left, others):
                rest = _after(limits, n, left // n)
                ways = 0 if rest is None else _size(self.options, others, left // n, rest)
                if number < ways and rest is not None:
                    break
                number -= ways
            else:
                raise AssertionError("no such number")
            out.append(n)
            left, limits = left // n, rest
        return tuple(out)

    def number(self, factors: Factors) -> int:
        """The number of a list in the family."""
        number, left, limits = 0, self.most, _known(self.limits, self.most)
        for others, own in zip(reversed(range(self.count)), factors, strict=True):
            for n in self.options(left, others):
                rest = _after(limits, n, left // n)
                if n == own:
                    assert rest is not None
                    left, limits = left // n, rest
                    break
                number += 0 if rest is None else _size(self.options, others, left // n, rest)
        return number

    def beside(self, factors: Factors) -> list[Factors]:
        """The lists before and after a list of the family, which connect all lists."""
        number = self.number(factors)
        return [self.at(n) for n in (number - 1, number + 1) if 0 <= n < self.size()]


def _known(limits: tuple[Limit, ...], left: int) -> tuple[Limit, ...]:
    """The limits in canonical form: products from 1 to `left`, so that equivalent limits are equal."""
    return tuple(Limit(x.levels, max(1, x.low), min(left, x.high)) for x in limits)


def _after(limits: tuple[Limit, ...], factor: int, left: int) -> tuple[Limit, ...] | None:
    """The limits on the factors after the first one; None if they cannot be satisfied any more."""
    out: list[Limit] = []
    for x in limits:
        first = bool(x.levels) and x.levels[0] == 0
        low, high = (-(-x.low // factor), x.high // factor) if first else (x.low, x.high)
        levels = tuple(n - 1 for n in x.levels[first:])
        if low > high or (low > 1 and not levels) or high < 1:
            return None
        if levels:
            out.append(Limit(levels, low, high))
    return _known(tuple(out), left)


@lru_cache(maxsize=1 << 16)
def _size(options: Options, count: int, left: int, limits: tuple[Limit, ...]) -> int:
    if any(x.low > x.high for x in limits):
        return 0
    if count == 0:
        return 1
    total = 0
    for n in options(left, count - 1):
        rest = _after(limits, n, left // n)
        total += 0 if rest is None else _size(options, count - 1, left // n, rest)
    return total
