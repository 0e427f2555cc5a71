"""Values of the maths functions with more digits than the type has: in float64 for float32, in longdouble for float64.

Where NumPy's longdouble is float64, as on Windows, errors of functions of float64 are known to an ulp only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.reference.maths import NUMERICS

Array = NDArray[Any]

_TERMS = 60
"""Those of the series up to the border, where the last ones are below 2^-64 of the sum."""

_FRACTIONS = 400
"""The levels of the continued fraction from the border on."""

_BORDER, _END = 1.5, 100.0
"""Beyond the border erfc is not the difference of 1 and erf, which loses digits. Beyond the end it is 0."""


def exact(function: str, *arguments: Array) -> Array:
    """The values at float32 or float64, in float64 or longdouble."""
    wide = np.float64 if arguments[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        given = (a.astype(wide) for a in arguments)
        return (
            _OWN[function](*given) if wide is np.longdouble and function in _OWN else NUMERICS[function].value(*given)
        )


def _decay(x: Array) -> Array:
    """exp(-x^2): the square of the upper half of the digits is exact, and so is the rest."""
    high = x.astype(np.float32).astype(np.longdouble)
    return np.exp(-high * high) * np.exp(-(x - high) * (x + high))


def _near(x: Array) -> Array:
    """erf(x) by a series of positive terms (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.6)."""
    term = total = x
    for n in range(1, _TERMS):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return total * _decay(x) * 2 / np.sqrt(np.arctan(np.longdouble(1)) * 4)


def _far(x: Array) -> Array:
    """erfc(x) by a continued fraction (7.1.14)."""
    below = np.zeros_like(x)
    for k in range(_FRACTIONS, 0, -1):
        below = np.longdouble(k) / 2 / (x + below)
    return _decay(x) / (x + below) / np.sqrt(np.arctan(np.longdouble(1)) * 4)


def _erf(x: Array) -> Array:
    a = np.abs(x)
    far = 1 - _far(np.clip(a, _BORDER, _END))
    return np.copysign(np.where(a < _BORDER, _near(np.minimum(a, _BORDER)), far), x)


def _erfc(x: Array) -> Array:
    a = np.abs(x)
    near, far = np.copysign(_near(np.minimum(a, _BORDER)), x), _far(np.clip(a, _BORDER, _END))
    return np.where(a < _BORDER, 1 - near, np.where(x < 0, 2 - far, far))


_OWN: dict[str, Callable[..., Array]] = {"erf": _erf, "erfc": _erfc}
"""What neither NumPy nor SciPy has in longdouble."""
