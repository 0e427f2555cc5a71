"""The values of the maths functions by NumPy and SciPy, and how errors of their arguments reach their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tensorc_dsl.ir.arrays import Array


@dataclass(frozen=True, slots=True)
class Point:
    """The value of a function, and its arguments with bounds on their errors."""

    value: Array
    x: Array
    dx: Array
    y: Array = field(default_factory=lambda: np.zeros(()))
    dy: Array = field(default_factory=lambda: np.zeros(()))


@dataclass(frozen=True, slots=True)
class Numerics:
    """`value` takes arrays of float64.

    `error` is a bound on the error that the value has from those of the arguments: to first order, the size of the derivative
    times the error. An `exact` function adds no rounding to it.
    """

    value: Callable[..., Array]
    error: Callable[[Point], Array]
    exact: bool = False


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _erf(x: Array) -> Array:
    from scipy import special  # a late import, here and below: it takes as long as checking a long text

    return special.erf(x)


def _sigmoid(x: Array) -> Array:
    from scipy import special

    return special.expit(x)


def steps(f: Callable[[Array], Array], x: Array, dx: Array) -> Array:
    """The largest change of a step function within `dx` of `x`: 0 unless a step is that close."""
    return np.maximum(np.abs(f(x + dx) - f(x)), np.abs(f(x - dx) - f(x)))


def _whole(f: Callable[[Array], Array]) -> Numerics:
    """A function to whole numbers."""
    return Numerics(f, lambda p: steps(f, p.x, p.dx), exact=True)


def tf32(x: Array) -> Array:
    """`x` with 11 significant bits, and no bit below those of the least normal f32, 2^-126; halves go away from zero.

    PTX ISA 9.2, "cvt": `cvt.rna.tf32.f32`.
    """
    exponent = np.frexp(x)[1] - 1
    unit = np.ldexp(1.0, np.maximum(exponent, -126) - 10)
    return np.where(np.isfinite(x), np.copysign(np.floor(np.abs(x) / unit + 0.5) * unit, x), x)


def _flat(p: Point) -> Array:
    """The error of a function whose derivative is nowhere above 1 in size."""
    return p.dx


def _power_error(p: Point) -> Array:
    from_y = np.where(p.dy > 0, np.abs(np.log(np.abs(p.x))) * p.dy, 0.0)
    return np.abs(p.value) * (np.abs(p.y) * p.dx / np.abs(p.x) + from_y)


NUMERICS: dict[str, Numerics] = {
    "exp": Numerics(np.exp, lambda p: np.abs(p.value) * np.expm1(p.dx)),
    "log": Numerics(np.log, lambda p: p.dx / np.abs(p.x)),
    "tanh": Numerics(np.tanh, _flat),
    "erf": Numerics(_erf, lambda p: 1.13 * p.dx),
    "sqrt": Numerics(np.sqrt, lambda p: np.minimum(np.sqrt(p.dx), p.dx / np.maximum(np.abs(p.value), 1e-300))),
    "rsqrt": Numerics(_rsqrt, lambda p: np.abs(p.value) * p.dx / np.abs(p.x)),
    "sigmoid": Numerics(_sigmoid, _flat),
    "floor": _whole(np.floor),
    "ceil": _whole(np.ceil),
    "round": _whole(np.rint),
    "abs": Numerics(np.abs, _flat, exact=True),
    "sin": Numerics(np.sin, _flat),
    "cos": Numerics(np.cos, _flat),
    "tf32": Numerics(tf32, lambda p: steps(tf32, p.x, p.dx), exact=True),
    "pow": Numerics(np.power, _power_error),
}
"""By name, for each function of `ir.maths`."""
