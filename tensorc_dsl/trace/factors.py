"""Ordered factorizations ("tilings") of a number: their count, random ones, and neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from tensorc_dsl.trace.distribution import Decision, below

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


def random_tiling(n: int, parts: int, rng: np.random.Generator) -> Factors:
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
