"""Arithmetic on single values, by the names that the texts of `interpret` use.

Integers are exact: the text wraps them. Floats are in float64. A division by 0
follows IEEE 754; `min` and `max` are NaN if an operand is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorc_dsl.ir.arrays import wide_dtype
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.maths import MATHS, Takes
from tensorc_dsl.ir.numbers import code_of, nearest, truncated, value_of
from tensorc_dsl.reference.maths import NUMERICS, called


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
