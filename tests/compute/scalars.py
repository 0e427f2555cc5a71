"""Single values of the language: types, wrapping, operators. Only `meaning` uses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from tensorc_dsl.reference.maths import tf32

Scalar = float | int | bool
INDEX = "index"
FLOATS = ("f16", "bf16", "f32", "f64")
WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
TYPES = (*FLOATS, *WIDTHS, "bool")
ARG = ("argmin", "argmax")

MATHS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": special.erf, "sqrt": np.sqrt, "sigmoid": special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x), "floor": np.floor, "ceil": np.ceil, "round": np.rint, "sin": np.sin,
    "cos": np.cos, "tf32": tf32, "abs": abs, "pow": lambda x, y: np.power(np.full(1, x), np.full(1, y))[0],
    "exp2": np.exp2, "log1p": np.log1p, "atan": np.arctan, "trunc": np.trunc, "copysign": math.copysign,
    "sign": lambda x: x if x != x else int(x > 0) - int(x < 0),
}  # fmt: skip

BITS: dict[str, Callable[[int, int, int], int]] = {
    "bit_and": lambda _, x, y: x & y,
    "bit_or": lambda _, x, y: x | y,
    "xor": lambda _, x, y: x ^ y,
    "shift_left": lambda n, x, y: x << y if 0 <= y < n else 0,
    "shift_right": lambda n, x, y: x >> y if 0 <= y < n else -1 if x < 0 else 0,
}
"""On integers of so many bits."""


@dataclass
class Tensor:
    """Elements by their indices, all of one type."""

    type: str
    shape: tuple[int, ...]
    elements: dict[tuple[int, ...], Scalar] = field(default_factory=dict[tuple[int, ...], Scalar])

    def __getitem__(self, at: tuple[int, ...]) -> Scalar:
        inside = len(at) == len(self.shape) and all(0 <= i < n for i, n in zip(at, self.shape, strict=True))
        assert inside, f"{at} is outside {self.shape}"
        return self.elements[at]

    def array(self) -> np.ndarray[Any, Any]:
        kind = (
            np.float64
            if self.type in FLOATS
            else bool
            if self.type == "bool"
            else np.uint64
            if self.type == "u64"
            else np.int64
        )
        out = np.empty(self.shape, kind)
        for at, value in self.elements.items():
            out[at] = value
        assert len(self.elements) == out.size
        return out


def tensor(type: str, values: np.ndarray[Any, Any]) -> Tensor:
    return Tensor(type, values.shape, {at: values[at].item() for at in np.ndindex(values.shape)})


def fit(value: Scalar, t: str) -> Scalar:
    """A value in its type: integers wrap around."""
    if t in FLOATS:
        return float(value)
    if t not in WIDTHS:
        return value
    turn = 2 ** WIDTHS[t]
    value = int(value) % turn
    return value - turn if t[0] == "i" and value >= turn // 2 else value


def literal(value: int | float, t: str) -> Scalar:
    """A written number as the value of a type: for a float type the nearest value."""
    if t == "bf16" and math.isfinite(value):
        part, exponent = math.frexp(value)
        return math.ldexp(float(round(math.ldexp(part, 8))), exponent - 8)
    narrow = {"f16": np.float16, "f32": np.float32}.get(t)
    return fit(value, t) if narrow is None else float(narrow(value))


def ends(t: str) -> tuple[Scalar, Scalar]:
    """The least and the greatest value of a type."""
    if t in FLOATS:
        return -np.inf, np.inf
    return (-(2 ** (WIDTHS[t] - 1)), 2 ** (WIDTHS[t] - 1) - 1) if t[0] == "i" else (0, 2 ** WIDTHS[t] - 1)


def operate(op: str, x: Any, y: Any, t: str) -> Scalar:
    """`x op y` on two values of one type."""
    if op in ("min", "max"):
        if x != x or y != y:
            return np.nan
        return min(x, y) if op == "min" else max(x, y)
    if op in ("+", "-", "*"):
        return fit(x + y if op == "+" else x - y if op == "-" else x * y, t)
    if t in FLOATS:
        return float(np.float64(x) / np.float64(y)) if op == "/" else remainder(x, y)
    if y == 0:
        return 0
    return fit(x // y if op == "/" else x % y, t)


def remainder(x: float, y: float) -> float:
    """`x` minus the floored multiple of `y`, of the sign of `y`; exact but for one rounding."""
    if x != x or y != y or abs(x) == np.inf or y == 0:
        return np.nan
    if abs(y) == np.inf:
        return x if x == 0 or (x < 0) == (y < 0) else y
    a, b = Fraction(x), Fraction(y)
    return float(a - b * (a // b))
