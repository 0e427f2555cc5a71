"""The coefficients of the maths functions in `tensorc_dsl/backend/llvm/codegen/`: minimax polynomials, found
again by `python -m bench.minimax`.

The smallest largest error on a grid of Chebyshev points is a linear program (Muller, Elementary Functions, 3rd ed., 2016,
chapter 3, has the theory); unlike the exchange algorithm of Remez it also stands weights of 0 and coefficients that are
given. A coefficient of float32 is rounded before the next higher one is found, so that what the rounding takes away the
others make good: the idea behind `fpminimax` (Brisebarre and Chevillard, Efficient polynomial L-infinity approximations,
ARITH 2007) in its simplest form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Real = NDArray[Any]  # of longdouble
GRID = 1001


@dataclass(frozen=True, slots=True)
class Wanted:
    """A polynomial of a degree for `f` on an interval; the error at x counts `weight(x)` times."""

    name: str
    f: Callable[[Real], Real]
    low: float
    high: float
    degree: int
    weight: Callable[[Real], Real]
    single: bool = True
    """Whether the coefficients are float32."""


@dataclass(frozen=True, slots=True)
class Found:
    coefficients: tuple[float, ...]
    """The highest power first."""
    error: float
    """The largest weighted error, without the roundings of an evaluation."""


def minimax(w: Wanted) -> Found:
    """The best polynomial, up to the rounding of its coefficients and the grid."""
    turns = np.cos(np.linspace(0, np.pi, GRID, dtype=np.longdouble))[::-1]
    x = (w.low + w.high) / 2 + (w.high - w.low) / 2 * turns
    y, weight = w.f(x), w.weight(x)
    known: list[float] = []
    rest = y
    for power in range(w.degree + 1):
        c = float(_best(x, rest, weight, power, w.degree)[0])
        known.append(float(np.float32(c)) if w.single else c)
        rest = rest - known[-1] * x**power
    return Found(tuple(reversed(known)), float(np.max(np.abs(rest * weight))))


def _best(x: Real, y: Real, weight: Real, low: int, high: int) -> NDArray[np.float64]:
    """The coefficients of x**low … x**high, lowest first.

    The linear program improves on least squares, in units of what those leave: so its own tolerance does not matter.
    """
    size = float(np.max(np.abs(x)))
    powers = np.arange(low, high + 1)
    basis = (weight[:, None] * (x[:, None] / size) ** powers).astype(np.float64)
    start = np.linalg.lstsq(basis, (y * weight).astype(np.float64))[0]
    left = y * weight - basis.astype(np.longdouble) @ start
    unit = np.max(np.abs(left))
    scaled = (left / unit).astype(np.float64)
    ones = np.ones((len(x), 1))
    done = optimize.linprog(
        [0.0] * len(powers) + [1.0],
        A_ub=np.block([[basis, -ones], [-basis, -ones]]),
        b_ub=np.concatenate([scaled, -scaled]),
        bounds=(None, None),
    )
    return np.asarray((start + float(unit) * done.x[:-1]) / size**powers)


def _log_part(f: Real) -> Real:
    """(log(1 + f) - f + f^2/2) / f^3 from its series, which loses nothing to cancellation."""
    total, power = np.zeros_like(f), np.ones_like(f)
    for k in range(160):
        total, power = total + power / (k + 3), power * -f
    return total


def _series(u: Real, ratio: Callable[[int], float]) -> Real:
    """1 + r(1) u + r(1) r(2) u^2 + …"""
    total, term = np.ones_like(u), np.ones_like(u)
    for k in range(1, 30):
        term = term * u * np.longdouble(ratio(k))
        total = total + term
    return total


def _erf_over_x(u: Real) -> Real:
    """erf(x) / x - 1 in u = x^2."""
    total, term = np.zeros_like(u), np.ones_like(u)
    for k in range(60):
        total, term = total + term / (2 * k + 1), term * -u / (k + 1)
    return total * 2 / np.sqrt(np.longdouble(np.pi)) - 1


def _erfc(x: Real) -> Real:
    return special.erfc(x.astype(np.float64)).astype(np.longdouble)


def _tanh_part(u: Real) -> Real:
    """(tanh(x) - x) / x^3 in u = x^2."""
    x = np.sqrt(u)
    return (np.tanh(x) - x) / x**3


_SMALL = 1e-4  # instead of 0, where quotients are 0 / 0
_HALF_LN2 = float(np.log(2)) / 2 * 1.001
_QUARTER = float(np.pi) / 4 * 1.001
_ROOT = float(np.sqrt(0.5))

WANTED = (
    Wanted(
        "exp: (exp(r) - 1 - r) / r^2",
        lambda r: 0.5 * _series(r, lambda k: 1 / (k + 2)), -_HALF_LN2, _HALF_LN2, 4, lambda r: r * r,
    ),
    Wanted(
        "log: (log(1 + f) - f + f^2/2) / f^3",
        _log_part, _ROOT - 1, 2 * _ROOT - 1, 7, lambda f: np.abs(f**3 / np.where(f == 0, 1, np.log1p(f))),
    ),
    Wanted(
        "tanh: (tanh(x) - x) / x^3 in x^2",
        _tanh_part, _SMALL, 0.625**2, 4, lambda u: u,
    ),
    Wanted("erf: erf(x) / x - 1 in x^2", _erf_over_x, 0.0, 1.0, 6, np.ones_like),
    Wanted(
        "erf: log(erfc(x))",
        lambda x: np.log(_erfc(x)), 1.0, 4.0, 6, _erfc,
    ),
    Wanted(
        "sin: (sin(r) - r) / r^3 in r^2",
        lambda u: -_series(-u, lambda k: 1 / ((2 * k + 2) * (2 * k + 3))) / 6, _SMALL, _QUARTER**2, 2, lambda u: u,
    ),
    Wanted(
        "cos: (cos(r) - 1 + r^2/2) / r^4 in r^2",
        lambda u: _series(-u, lambda k: 1 / ((2 * k + 3) * (2 * k + 4))) / 24, _SMALL, _QUARTER**2, 2, lambda u: u * u,
    ),
    Wanted(
        "pow: log2((1 + s) / (1 - s)) / s in s^2",
        lambda u: _series(u, lambda k: (2 * k - 1) / (2 * k + 1)) * 2 / np.log(np.longdouble(2)),
        0.0, (3 - 2 * 2**0.5) ** 2 * 1.001, 4, np.ones_like, single=False,
    ),
    Wanted(
        "pow: 2^r", np.exp2, -0.5, 0.5, 7, lambda r: np.exp2(-r), single=False,
    ),
)  # fmt: skip


def main() -> None:
    for w in WANTED:
        found = minimax(w)
        print(f"{w.name} on [{w.low:.5g}, {w.high:.5g}], error {found.error:.2g} = 2^{np.log2(found.error):.1f}")
        for c in found.coefficients:
            print(f"    {np.float32(c) if w.single else c},")


if __name__ == "__main__":
    main()
