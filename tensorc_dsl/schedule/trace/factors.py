"""Ordered factorizations ("tilings") of a number: their count, random ones, and neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.trace.distribution import BAD_ARGUMENT, Decision, Interval, below

if TYPE_CHECKING:
    import numpy as np


Factors = tuple[int, ...]

_SMALL = 1 << 16
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Sufficient to recognise primes below 3.3e24 (Sorenson and Webster, arXiv:1509.00864)."""


@lru_cache(maxsize=4096)
def factorize(n: int) -> tuple[tuple[int, int], ...]:
    """The primes that divide n, in ascending order, each with its exponent."""
    found: dict[int, int] = {}
    p = 2
    while p * p <= n and p < _SMALL:
        while n % p == 0:
            found[p] = found.get(p, 0) + 1
            n //= p
        p += 1 if p == 2 else 2
    rest = [n] if n > 1 else []
    while rest:
        m = rest.pop()
        if m < _SMALL * _SMALL or _is_prime(m):
            found[m] = found.get(m, 0) + 1
        else:
            d = _divisor(m)
            rest += [d, m // d]
    return tuple(sorted(found.items()))


def _is_prime(n: int) -> bool:
    """The Miller-Rabin test; n is odd and has no divisor among the witnesses."""
    d, s = n - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for a in _WITNESSES:
        x = pow(a, d, n)
        if x in (1, n - 1):
            continue
        if not any((x := x * x % n) == n - 1 for _ in range(s - 1)):
            return False
    return True


def _divisor(n: int) -> int:
    """A proper divisor of an odd composite number, by Pollard's rho."""
    for c in range(1, n):
        slow = fast = 2
        d = 1
        while d == 1:
            slow = (slow * slow + c) % n
            fast = (fast * fast + c) % n
            fast = (fast * fast + c) % n
            d = math.gcd(slow - fast, n)
        if d != n:
            return d
    raise AssertionError(f"{n} is prime")


def divisors(n: int, bound: int) -> list[int]:
    """The divisors of n up to `bound`, in ascending order."""
    out = [1]
    for p, e in factorize(n):
        out = [d * p**k for d in out for k in range(e + 1) if d * p**k <= bound]
    return sorted(out)


@lru_cache(maxsize=1 << 16)
def tilings(n: int, parts: int) -> int:
    """The number of ways to write n as a product of `parts` ordered factors; 1 for n = 1 without parts."""
    if parts == 0:
        return int(n == 1)
    return math.prod(math.comb(e + parts - 1, parts - 1) for _, e in factorize(n))


def random_factors(n: int, parts: int, rng: np.random.Generator) -> Factors:
    """`parts` ordered factors with product n; all tilings are equally likely."""
    out = [1] * parts
    for p, e in factorize(n) if parts else ():
        # The exponent of each prime is distributed uniformly: the number of remaining parts gives the probabilities.
        for i in range(parts - 1):
            left = parts - i - 1
            ticket = below(math.comb(e + left, left), rng)
            k = 0
            while ticket >= (ways := math.comb(e - k + left - 1, left - 1)):
                ticket -= ways
                k += 1
            out[i] *= p**k
            e -= k
        out[-1] *= p**e
    return tuple(out)


def tile_moves(factors: Factors, contains: Callable[[Decision], bool]) -> list[Decision]:
    """Every tiling in the support that differs by one prime factor moved between two levels."""
    out: list[Decision] = []
    for source, factor in enumerate(factors):
        for p, _ in factorize(factor):
            for sink in range(len(factors)):
                if sink != source:
                    moved = list(factors)
                    moved[source] //= p
                    moved[sink] *= p
                    if contains(tuple(moved)):
                        out.append(tuple(moved))
    return out


def tile_features(factors: Factors) -> tuple[float, ...]:
    """log2 of the product of the inner factors at each level, innermost first, without the product of all factors."""
    out: list[float] = []
    product = 1
    for f in reversed(factors[1:]):
        product *= f
        out.append(math.log2(product))
    return tuple(out)


def is_tiling(decision: Decision, n: int, parts: int) -> bool:
    """Whether the decision is a tuple of `parts` positive factors with product n."""
    return (
        isinstance(decision, tuple)
        and len(decision) == parts
        and all(type(f) is int and f >= 1 for f in decision)
        and math.prod(decision) == n
    )


# Factors within limits: tiles for which the products of some factors are bounded.
#
# The lists of such factors are numbered in lexicographic order, by counting the lists with each prefix. So a uniform random
# number gives a uniform random list, however few there are.


@frozen
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


@frozen
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
