"""Minimax polynomials in decimal arithmetic: the coefficients for float64, and of the functions that came with them.

    python -m bench.remez

`bench.minimax` solves linear programs in float64, which do not know errors below 2^-53. Here the exchange of Remez (Muller,
Elementary Functions, 3rd ed., 2016, chapter 3) is done in 60 digits, on a grid of Chebyshev points. A coefficient of float32
is rounded before the next higher one is found; those of float64 are rounded as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, getcontext

import numpy as np

getcontext().prec = 60
D = Decimal
Function = Callable[[Decimal], Decimal]

_SMALL = D(10) ** -58
_EXCHANGES = 30
_NEAR = D("1.0005")
"""The largest error is the smallest one there is up to this factor."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A polynomial of a degree for `f` on an interval; the error at x counts `weight(x)` times."""

    name: str
    f: Function
    low: Decimal
    high: Decimal
    degree: int
    weight: Function
    single: bool = False
    """Whether the coefficients are float32."""


def _best(xs: Sequence[Decimal], ys: Sequence[Decimal], ws: Sequence[Decimal], low: int, high: int) -> list[Decimal]:
    """The coefficients of x**low … x**high, lowest first, by exchange of the points at which the error is the same."""
    n, last = high - low + 1, len(xs) - 1
    powers = [[x**k if k else D(1) for x in xs] for k in range(low, high + 1)]
    points = [round(i * last / n) for i in range(n + 1)]
    found: list[Decimal] = []
    for _ in range(_EXCHANGES):
        rows = [[*(p[i] for p in powers), D(-1) ** j / ws[i]] for j, i in enumerate(points)]
        solved = _solve(rows, [ys[i] for i in points])
        found, level = solved[:n], abs(solved[n])
        errors = [
            w * (y - sum((c * p[i] for c, p in zip(found, powers, strict=True)), D(0)))
            for i, (w, y) in enumerate(zip(ws, ys, strict=True))
        ]
        if max(map(abs, errors)) <= level * _NEAR:
            break
        points = _extremes(errors, n + 1)
    return found


def _extremes(errors: Sequence[Decimal], count: int) -> list[int]:
    """So many places of extremes of alternating signs, the largest ones."""
    places: list[int] = []
    for i, e in enumerate(errors):
        if places and (e > 0) == (errors[places[-1]] > 0):
            if abs(e) > abs(errors[places[-1]]):
                places[-1] = i
        else:
            places.append(i)
    while len(places) > count:
        sizes = [abs(errors[i]) for i in places]
        if len(places) == count + 1:
            places.pop(0 if sizes[0] < sizes[-1] else -1)
        else:
            k = min(range(len(places) - 1), key=lambda k: min(sizes[k], sizes[k + 1]))
            del places[k : k + 2]
    return places


def _solve(rows: list[list[Decimal]], right: list[Decimal]) -> list[Decimal]:
    """The solution of a system of linear equations, by elimination with pivots."""
    m, n = [[*r, b] for r, b in zip(rows, right, strict=True)], len(right)
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(m[r][i]))
        m[i], m[p] = m[p], m[i]
        for r in range(i + 1, n):
            q = m[r][i] / m[i][i]
            m[r] = [a - q * b for a, b in zip(m[r], m[i], strict=True)]
    out = [D(0)] * n
    for i in reversed(range(n)):
        out[i] = (m[i][n] - sum((m[i][c] * out[c] for c in range(i + 1, n)), D(0))) / m[i][i]
    return out


def minimax(w: Wanted) -> tuple[tuple[float, ...], float]:
    """The coefficients, the highest power first, and the largest weighted error."""
    count = max(16 * (w.degree + 3), 300 if w.degree > 20 else 0)
    turns = (D(math.cos(math.pi * i / count)) for i in range(count + 1))
    xs = [x for t in turns if w.weight(x := (w.low + w.high) / 2 - (w.high - w.low) / 2 * t)]
    rest, ws = [w.f(x) for x in xs], [w.weight(x) for x in xs]
    known: list[float] = []
    while len(known) <= w.degree:
        low = len(known)
        found = _best(xs, rest, ws, low, w.degree)
        made = [float(np.float32(float(found[0])))] if w.single else [float(c) for c in found]
        for k, c in enumerate(made, low):
            rest = [r - D(c) * (x**k if k else D(1)) for r, x in zip(rest, xs, strict=True)]
        known += made
    return tuple(reversed(known)), float(max(abs(r * v) for r, v in zip(rest, ws, strict=True)))


# --- functions -------------------------------------------------------------------------------------------------------


def _series(u: Decimal, ratio: Callable[[int], Decimal]) -> Decimal:
    """1 + r(1) u + r(1) r(2) u^2 + …"""
    total = term = D(1)
    k = 1
    while abs(term) > _SMALL:
        term *= u * ratio(k)
        total += term
        k += 1
    return total


def _fractions(u: Decimal, first: int) -> Decimal:
    """1 / first + u / (first + 2) + u^2 / (first + 4) + …"""
    total, power, k = D(0), D(1), first
    while abs(power) > _SMALL:
        total += power / k
        power *= u
        k += 2
    return total


def _asin_part(u: Decimal) -> Decimal:
    """(asin(x) - x) / x^3 in u = x^2."""
    return _series(u, lambda k: D((2 * k + 1) ** 2) / ((2 * k + 2) * (2 * k + 3))) / 6


def _inverse_tangent(n: int) -> Decimal:
    """atan(1 / n)."""
    return _fractions(D(-1) / (n * n), 1) / n


PI = 4 * (4 * _inverse_tangent(5) - _inverse_tangent(239))
LN2 = D(2).ln()


def _erf_over_x(u: Decimal) -> Decimal:
    """erf(x) / x - 1 in u = x^2."""
    return _series(u, lambda k: D(2) / (2 * k + 1)) * (-u).exp() * 2 / PI.sqrt() - 1


def _scaled_erfc(t: Decimal) -> Decimal:
    """exp(x^2) erfc(x) (1 + 2x) for t = (x - 4) / (x + 4): by the series of erf, or a continued fraction."""
    x = 4 * (1 + t) / (1 - t)
    if x < 4:
        found = (x * x).exp() - x * _series(x * x, lambda k: D(2) / (2 * k + 1)) * 2 / PI.sqrt()
    else:
        below = D(0)
        for k in range(int(3000 / (x * x)) + 80, 0, -1):
            below = D(k) / 2 / (x + below)
        found = 1 / (PI.sqrt() * (x + below))
    return found * (1 + 2 * x)


def _one(_: Decimal) -> Decimal:
    return D(1)


def _size(x: Decimal) -> Decimal:
    """|x|, which must not be 0 next to it."""
    return max(abs(x), D("0.03"))


def _exp2_part(r: Decimal) -> Decimal:
    return LN2 * _series(r * LN2, lambda k: D(1) / (k + 1))


def _atan_part(u: Decimal) -> Decimal:
    return -_fractions(-u, 3)


_HALF_LN2, _QUARTER = LN2 / 2 * D("1.001"), PI / 4 * D("1.02")
_EIGHTH = (D(2).sqrt() - 1) ** 2 * D("1.001")
_QUOTIENT = (3 - 2 * D(2).sqrt()) ** 2 * D("1.001")

WANTED = (
    Wanted(
        "exp: (exp(r) - 1 - r) / r^2", lambda r: _series(r, lambda k: D(1) / (k + 2)) / 2,
        -_HALF_LN2, _HALF_LN2 * D("1.003"), 10, _size,
    ),
    Wanted("exp2: (2^r - 1) / r", _exp2_part, D("-0.5"), D("0.502"), 11, _size),
    Wanted("exp2 of f32", _exp2_part, D("-0.5"), D("0.502"), 6, _size, single=True),
    Wanted("log: (log((1 + s) / (1 - s)) - 2s) / s^3 in s^2", lambda z: 2 * _fractions(z, 3), D(0), _QUOTIENT, 6, abs),
    Wanted("pow: (atanh(s) / s - 1 - s^2/3) / s^4 in s^2", lambda z: _fractions(z, 5), D(0), _QUOTIENT, 7, lambda u: u * u),
    Wanted(
        "sin: (sin(r) - r) / r^3 in r^2",
        lambda u: -_series(-u, lambda k: D(1) / ((2 * k + 2) * (2 * k + 3))) / 6, D(0), _QUARTER**2, 5, abs,
    ),
    Wanted(
        "cos: (cos(r) - 1 + r^2/2) / r^4 in r^2",
        lambda u: _series(-u, lambda k: D(1) / ((2 * k + 3) * (2 * k + 4))) / 24, D(0), _QUARTER**2, 5, lambda u: u * u,
    ),
    Wanted("atan: (atan(t) - t) / t^3 in t^2", _atan_part, D(0), _EIGHTH, 10, abs),
    Wanted("atan of f32", _atan_part, D(0), _EIGHTH, 4, abs, single=True),
    Wanted("asin: (asin(x) - x) / x^3 in x^2", _asin_part, D(0), D("0.25"), 12, abs),
    Wanted("asin of f32", _asin_part, D(0), D("0.25"), 4, abs, single=True),
    Wanted("erf: erf(x) / x - 1 in x^2", _erf_over_x, D(0), D(1), 12, _one),
    Wanted("erfc: exp(x^2) erfc(x) (1 + 2x) in (x - 4) / (x + 4)", _scaled_erfc, D(-1), D(24) / 32, 22, _one),
)  # fmt: skip


def main() -> None:
    for w in WANTED:
        found, error = minimax(w)
        print(f"{w.name} on [{float(w.low):.5g}, {float(w.high):.5g}], error {error:.2g} = 2^{math.log2(error):.1f}")
        for c in found:
            print(f"    {c!r},")


if __name__ == "__main__":
    main()
