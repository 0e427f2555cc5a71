"""The values of the maths functions by NumPy and SciPy, and how errors of their arguments reach their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, wide_dtype
from tensorc_dsl.ir.dtypes import DType, code_of, nearest, truncated, value_of
from tensorc_dsl.ir.maths import MATHS, Takes

# The values of the functions of bits, by NumPy: of integers of a type, which are wide.


def _bits(t: DType, x: Array) -> Array:
    """The bits that the integers have in their type."""
    return np.asarray(x).astype(wide_dtype(t), copy=False).view(np.uint64) & np.uint64(2**t.bits - 1)


def _counts(t: DType, n: Array) -> Array:
    """Counts as wide values of the type."""
    return n.astype(wide_dtype(t))


def popcount(t: DType, x: Array) -> Array:
    """How many bits are set."""
    return _counts(t, np.bitwise_count(_bits(t, x)))


def ctz(t: DType, x: Array) -> Array:
    """How many bits are below the lowest that is set; of 0 all of them."""
    u = _bits(t, x)
    below = (u & (~u + np.uint64(1))) - np.uint64(1)  # of 0 all 64 bits
    return _counts(t, np.minimum(np.bitwise_count(below), t.bits))


def clz(t: DType, x: Array) -> Array:
    """How many bits are above the highest that is set; of 0 all of them."""
    u = _bits(t, x)
    for places in (1, 2, 4, 8, 16, 32):
        u = u | (u >> np.uint64(places))
    return _counts(t, t.bits - np.bitwise_count(u))


@frozen
class Point:
    """The value of a function, and its arguments with bounds on their errors."""

    value: Array
    x: Array
    dx: Array
    y: Array = field(default_factory=lambda: np.zeros(()))
    dy: Array = field(default_factory=lambda: np.zeros(()))


@frozen
class Numerics:
    """`value` takes arrays of wide values; before them their type, if that is `typed`.

    `error` is a bound on the error that the value has from those of the arguments: to first order, the size of the derivative
    times the error. An `exact` function adds no rounding to it.
    """

    value: Callable[..., Array]
    error: Callable[[Point], Array]
    exact: bool = False
    typed: bool = False


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _erf(x: Array) -> Array:
    from scipy import special  # a late import, here and below: it takes as long as checking a long text

    return special.erf(x)


def _erfc(x: Array) -> Array:
    from scipy import special

    return special.erfc(x)


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


def _monotonic(f: Callable[[Array], Array]) -> Callable[[Point], Array]:
    """The error of a function that rises nowhere faster than its argument, and ends at limits: that of tanh(-1e9) is 0,
    although f32 has -1e9 to within 32 only.
    """

    def error(p: Point) -> Array:
        if not (p.dx > _LARGE).any():
            return p.dx
        return np.fmin(p.dx, steps(f, p.x, p.dx) + 4 * np.finfo(np.float64).eps * np.abs(p.value))

    return error


def _turning(p: Point) -> Array:
    """The error of a sine or a cosine."""
    return np.minimum(p.dx, 2.0)


def _grown(p: Point, power: Callable[[Array], Array], value: Array, base: float = np.e) -> Array:
    """The error of `base` to the power of the argument, which is `value`. It is below the greatest result that there can be,
    which of exp(-1e9) is 0.
    """
    error = value * np.expm1(p.dx * np.log(base))
    return np.fmin(error, power(p.x + p.dx)) if (p.dx > _LARGE).any() else error


_LARGE = 0.125
"""An error from which on a function is evaluated at both ends of it, which takes time."""


def _over(p: Point, slope: Array) -> Array:
    """The error of a function whose derivative is 1 / slope."""
    return p.dx / np.maximum(np.abs(slope), 1e-300)


def _arc(p: Point) -> Array:
    """The error of `asin` and `acos`: their derivative is infinite at -1 and 1, next to which they are as roots are."""
    return np.minimum(2.3 * np.sqrt(p.dx), _over(p, np.sqrt(np.maximum(1 - p.x * p.x, 0.0))))


def _acosh_error(p: Point) -> Array:
    return np.minimum(np.sqrt(2 * p.dx), _over(p, np.sqrt(np.maximum(p.x * p.x - 1, 0.0))))


def _tan_error(p: Point) -> Array:
    """That of 1 / (1 / tan), too, which has no pole where this one has it."""
    return p.dx * (1 + p.value**2) / np.maximum(1 - p.dx * np.abs(p.value), 0.5)


def _erfc_error(p: Point) -> Array:
    nearest = np.maximum(np.abs(p.x) - p.dx, 0.0)
    return 1.13 * np.exp(-nearest * nearest) * p.dx


def _angle_error(p: Point) -> Array:
    """Of `atan2(x, y)`: it turns round where x passes 0 and y is negative."""
    turns = (np.abs(p.x) <= p.dx) & (p.y < p.dy) & (p.dx > 0)
    share = (np.abs(p.x) * p.dy + np.abs(p.y) * p.dx) / np.maximum(p.x * p.x + p.y * p.y, 1e-300)
    return np.where(turns, 2 * np.pi, np.minimum(share, 2 * np.pi))


def _both(p: Point) -> Array:
    return p.dx + p.dy


def _any_bits(p: Point) -> Array:
    """Bits say nothing about how near numbers are: a result of integers that may differ may be any."""
    return np.where((p.dx > 0) | (p.dy > 0), np.inf, 0.0)


def _condition(f: Callable[[Array], Array]) -> Numerics:
    """A condition is decided as in the reference."""
    return Numerics(f, lambda p: np.zeros_like(p.dx), exact=True)


def _of_bits(f: Callable[..., Array]) -> Numerics:
    return Numerics(f, _any_bits, exact=True)


def _of_width(f: Callable[..., Array]) -> Numerics:
    return Numerics(f, _any_bits, exact=True, typed=True)


def _power_error(p: Point) -> Array:
    from_y = np.where(p.dy > 0, np.abs(np.log(np.abs(p.x))) * p.dy, 0.0)
    return np.abs(p.value) * (np.abs(p.y) * p.dx / np.abs(p.x) + from_y)


NUMERICS: dict[str, Numerics] = {
    "exp": Numerics(np.exp, lambda p: _grown(p, np.exp, p.value)),
    "exp2": Numerics(np.exp2, lambda p: _grown(p, np.exp2, p.value, 2.0)),
    "expm1": Numerics(np.expm1, lambda p: _grown(p, np.exp, np.exp(p.x))),
    "log": Numerics(np.log, lambda p: p.dx / np.abs(p.x)),
    "log2": Numerics(np.log2, lambda p: p.dx / np.abs(p.x) / np.log(2.0)),
    "log10": Numerics(np.log10, lambda p: p.dx / np.abs(p.x) / np.log(10.0)),
    "log1p": Numerics(np.log1p, lambda p: _over(p, 1 + p.x)),
    "tanh": Numerics(np.tanh, _monotonic(np.tanh)),
    "sinh": Numerics(np.sinh, lambda p: np.cosh(np.abs(p.x) + p.dx) * p.dx),
    "cosh": Numerics(np.cosh, lambda p: np.sinh(np.abs(p.x) + p.dx) * p.dx),
    "asinh": Numerics(np.arcsinh, _flat),
    "acosh": Numerics(np.arccosh, _acosh_error),
    "atanh": Numerics(np.arctanh, lambda p: _over(p, 1 - p.x * p.x)),
    "erf": Numerics(_erf, lambda p: 1.13 * _monotonic(_erf)(p)),
    "erfc": Numerics(_erfc, _erfc_error),
    "sqrt": Numerics(np.sqrt, lambda p: np.minimum(np.sqrt(p.dx), p.dx / np.maximum(np.abs(p.value), 1e-300))),
    "rsqrt": Numerics(_rsqrt, lambda p: np.abs(p.value) * p.dx / np.abs(p.x)),
    "cbrt": Numerics(np.cbrt, lambda p: np.minimum(1.6 * np.cbrt(p.dx), _over(p, 3 * p.value * p.value))),
    "hypot": Numerics(np.hypot, _both),
    "sigmoid": Numerics(_sigmoid, _monotonic(_sigmoid)),
    "floor": _whole(np.floor),
    "ceil": _whole(np.ceil),
    "trunc": _whole(np.trunc),
    "round": _whole(np.rint),
    "abs": Numerics(np.abs, _flat, exact=True),
    "sign": _whole(np.sign),
    "copysign": Numerics(
        np.copysign, lambda p: p.dx + np.where((np.abs(p.y) <= p.dy) & (p.dy > 0), 2 * np.abs(p.x), 0.0), exact=True
    ),
    "sin": Numerics(np.sin, _turning),
    "cos": Numerics(np.cos, _turning),
    "tan": Numerics(np.tan, _tan_error),
    "asin": Numerics(np.arcsin, _arc),
    "acos": Numerics(np.arccos, _arc),
    "atan": Numerics(np.arctan, _monotonic(np.arctan)),
    "atan2": Numerics(np.arctan2, _angle_error),
    "tf32": Numerics(tf32, lambda p: steps(tf32, p.x, p.dx), exact=True),
    "pow": Numerics(np.power, _power_error),
    "isnan": _condition(np.isnan),
    "isinf": _condition(np.isinf),
    "isfinite": _condition(np.isfinite),
    "bit_and": _of_bits(np.bitwise_and),
    "bit_or": _of_bits(np.bitwise_or),
    "bit_not": _of_bits(np.invert),
    "shift_left": _of_bits(np.left_shift),
    "shift_right": _of_bits(np.right_shift),
    "popcount": _of_width(popcount),
    "clz": _of_width(clz),
    "ctz": _of_width(ctz),
}
"""By name, for each function of `ir.maths`."""


def called(function: str, t: DType, *args: Array) -> Array:
    """The value of a function of wide values of type `t`, which is not wrapped around."""
    known = NUMERICS[function]
    return known.value(t, *args) if known.typed else known.value(*args)


# Arithmetic on single values, by the names that the texts of `interpret` use.
#
# Integers are exact: the text wraps them. Floats are in float64. A division by 0
# follows IEEE 754; `min` and `max` are NaN if an operand is.


def _min(a: float, b: float) -> float:
    return a if a < b or math.isnan(a) else b


def _max(a: float, b: float) -> float:
    return a if a > b or math.isnan(a) else b


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _float_function(f: Callable[..., Any]) -> Callable[..., float]:
    def call(*args: float) -> float:
        with np.errstate(all="ignore"):
            # Arrays: NumPy computes a scalar power 0.5 as a square root, which is NaN for -inf, whereas C's `pow` is inf.
            return f(*(np.array([x], np.float64) for x in args)).item()

    return call


def _integer_function(name: str) -> Callable[..., int]:
    def call(t: DType, *args: int) -> int:
        with np.errstate(all="ignore"):
            return called(name, t, *(np.array([x], wide_dtype(t)) for x in args)).item()

    return call


SCALARS: dict[str, Callable[..., Any]] = {
    "divide": _divide,
    "nearest": nearest,
    "code_of": code_of,
    "value_of": value_of,
    "truncated": truncated,
    "modulo": _float_function(np.mod),
    "min_float": _min,
    "max_float": _max,
    **{f"call_{name}": _float_function(n.value) for name, n in NUMERICS.items()},
    **{f"whole_{name}": _integer_function(name) for name, m in MATHS.items() if m.takes is not Takes.FLOATS},
}
"""The functions by name. `call_…` are the maths functions of floats, `whole_…` those of integers, whose type comes first."""
