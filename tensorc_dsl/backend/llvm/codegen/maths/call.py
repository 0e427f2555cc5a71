"""The code of each maths function, and its accuracy: vector code of our own, or instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

from tensorc_dsl.backend.llvm.codegen.function import Function, Value, constant_value
from tensorc_dsl.backend.llvm.codegen.maths import integers
from tensorc_dsl.backend.llvm.codegen.maths.exponentials import cosh, erf, erfc, exp, exp2, expm1, sigmoid, sinh, tanh
from tensorc_dsl.backend.llvm.codegen.maths.integers import tf32
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.logarithms import (
    acosh,
    asinh,
    atanh,
    cbrt,
    hypot,
    log,
    log1p,
    log2,
    log10,
    power,
)
from tensorc_dsl.backend.llvm.codegen.maths.trigonometric import acos, asin, atan, atan2, cos, sin, tan
from tensorc_dsl.backend.llvm.codegen.scalars import binary, convert
from tensorc_dsl.ir.dtypes import BOOL, F32
from tensorc_dsl.ir.maths import CONDITIONS

Emit = Callable[[Function, tuple[Value, ...]], Value]


@dataclass(frozen=True, slots=True)
class Code:
    """`emit` makes the value of floats of 32 or 64 bits, or of integers.

    The other fields are of floats: the method, bounds of the errors in ulps of f32 and of f64 (docs/maths.md), None if every
    result is the nearest float, and the arguments for which this holds.
    """

    emit: Emit
    method: str = "an instruction"
    ulps: tuple[float, float] | None = None
    arguments: str = "all"


def _instruction(name: str) -> Code:
    """One instruction of LLVM."""
    return Code(lambda f, args: f.intrinsic(name, args[0].dtype, args))


def _lanes(function: Callable[..., Lanes]) -> Emit:
    """Code of our own."""
    return lambda f, args: function(*(Lanes(f, x) for x in args)).value


def _condition(word: str, size: bool) -> Emit:
    """A comparison of a float, or of its size, with infinity."""

    def emit(f: Function, args: tuple[Value, ...]) -> Value:
        a = f.intrinsic("fabs", args[0].dtype, args) if size else args[0]
        return f.value(BOOL, f"fcmp {word} {a.type} {a.ref}, {constant_value(a.dtype, inf, a.lanes).ref}", a.lanes)

    return emit


def _rsqrt(f: Function, args: tuple[Value, ...]) -> Value:
    a = args[0]
    return binary(f, "/", constant_value(a.dtype, 1.0, a.lanes), f.intrinsic("sqrt", a.dtype, args))


def _absolute(f: Function, args: tuple[Value, ...]) -> Value:
    a = args[0]
    return f.intrinsic("fabs", a.dtype, args) if a.dtype.is_float else integers.absolute(f, a)


def _sign(f: Function, args: tuple[Value, ...]) -> Value:
    """A zero has the sign 0, and NaN has none."""
    a = args[0]
    if not a.dtype.is_float:
        return integers.sign(f, a)
    x = Lanes(f, a)
    found = (x > 0.0).choose(x.constant(1.0), (x < 0.0).choose(x.constant(-1.0), x.constant(0.0)))
    return x.equals(x).choose(found, x).value


_ANGLES = "x = n π/2 + r, r as two f64 for f64; two polynomials in r²"
_LOGARITHM = "x = 2ᵉ m, √½ ≤ m < √2; for f32 a polynomial in m − 1, for f64 one in the square of (m − 1) / (m + 1)"
_ARC = "up to ½ a polynomial in x², above it that of √((1 − x) / 2)"
_POINT = "multiples of π/4 and a quotient of at most √2 − 1; a polynomial in its square"
_EXPM1 = "a sum and a quotient of `expm1(x)` / 4"
_IN_F64 = "in f64: "

CODES: dict[str, Code] = {
    "exp": Code(
        _lanes(exp),
        "x = n ln 2 + r; a polynomial in r; 2ⁿ by AVX-512's `vscalef`, or in two factors: the same results",
        (1.03, 1.1),
        "all; subnormal results included",
    ),
    "exp2": Code(_lanes(exp2), "x = n + r, as `exp`", (0.88, 1.05), "all; subnormal results included"),
    "expm1": Code(_lanes(expm1), "2ⁿ (exp(r) − 1) + (2ⁿ − 1), the last sum with what it loses", (1.1, 1.25)),
    "log": Code(_lanes(log), _LOGARITHM, (0.86, 0.95), "all; subnormal ones included"),
    "log2": Code(_lanes(log2), f"{_LOGARITHM}; a product of two floats", (0.79, 0.85), "all; subnormal ones included"),
    "log10": Code(_lanes(log10), f"{_LOGARITHM}; a product of two floats", (0.71, 0.8), "all; subnormal ones included"),
    "log1p": Code(_lanes(log1p), "`log` of 1 + x, and what the sum lacks over it", (0.87, 0.95)),
    "tanh": Code(
        _lanes(tanh),
        "below 0.625 a polynomial in x², above it 1 − 2 / (exp(2x) + 1); for f64, with q = `expm1(2x)` / 4, q / (q + ½)",
        (1.34, 1.65),
    ),
    "sinh": Code(_lanes(sinh), _EXPM1, (1.98, 1.95)),
    "cosh": Code(_lanes(cosh), _EXPM1, (1.58, 1.7)),
    "asinh": Code(_lanes(asinh), f"{_IN_F64}`log1p` of x + x² / (1 + √(x² + 1))", (0.51, 1.9)),
    "acosh": Code(_lanes(acosh), f"{_IN_F64}`log1p` of t + √(t² + 2t), t = x − 1", (0.51, 2.2)),
    "atanh": Code(_lanes(atanh), f"{_IN_F64}½ `log1p` of 2x / (1 − x)", (0.51, 2.15)),
    "erf": Code(
        _lanes(erf),
        "below 1 a polynomial in x², above it 1 − exp(polynomial), for f64 1 − `erfc`",
        (1.09, 1.25),
    ),
    "erfc": Code(_lanes(erfc), f"{_IN_F64}exp(−x²) / (1 + 2x) times a polynomial in (x − 4) / (x + 4)", (0.51, 3.4)),
    "sigmoid": Code(_lanes(sigmoid), "with z = exp(−|x|) and w = z / (1 + z): 1 − w, or z − z w", (1.67, 1.75)),
    "rsqrt": Code(_rsqrt, "1 / sqrt(x), two instructions that round correctly", (1.5, 1.5)),
    "cbrt": Code(_lanes(cbrt), f"{_IN_F64}2 to a third of the logarithm, and a step of Newton's method", (0.51, 0.51)),
    "hypot": Code(_lanes(hypot), f"{_IN_F64}squares, of f64 scaled, and a root", (0.51, 1.15)),
    "sin": Code(_lanes(sin), _ANGLES, (1.55, 0.95), "all"),
    "cos": Code(_lanes(cos), _ANGLES, (1.55, 0.95), "all"),
    "tan": Code(_lanes(tan), f"{_ANGLES}, and their quotient, of f32 in f64", (0.57, 1.2), "all"),
    "asin": Code(_lanes(asin), _ARC, (1.21, 1.25)),
    "acos": Code(_lanes(acos), _ARC, (0.79, 0.9)),
    "atan": Code(_lanes(atan), _POINT, (1.86, 2.0)),
    "atan2": Code(_lanes(atan2), _POINT, (2.1, 2.1)),
    "pow": Code(_lanes(power), "2^(y log₂ x): of f32 in f64, of f64 with two f64 for the logarithm", (0.51, 1.3)),
    "tf32": Code(
        lambda f, args: tf32(Lanes(f, args[0])).value, "half a unit is added to the bits, and the rest cut off"
    ),
    "sqrt": _instruction("sqrt"),
    "floor": _instruction("floor"),
    "ceil": _instruction("ceil"),
    "trunc": _instruction("trunc"),
    "round": _instruction("roundeven"),
    "copysign": _instruction("copysign"),
    "abs": Code(_absolute),
    "sign": Code(_sign, "comparisons"),
    "isnan": Code(_condition("uno", size=False), "a comparison"),
    "isinf": Code(_condition("oeq", size=True), "a comparison"),
    "isfinite": Code(_condition("olt", size=True), "a comparison"),
    "bit_and": Code(partial(integers.bitwise, "and")),
    "bit_or": Code(partial(integers.bitwise, "or")),
    "bit_not": Code(integers.inverted),
    "shift_left": Code(integers.shift_left),
    "shift_right": Code(integers.shift_right),
    "popcount": Code(partial(integers.counted, "ctpop")),
    "clz": Code(partial(integers.counted, "ctlz")),
    "ctz": Code(partial(integers.counted, "cttz")),
}
"""By name, for each function of `ir.maths`. docs/maths.md describes the methods and how the errors are measured."""


def call(f: Function, function: str, args: tuple[Value, ...]) -> Value:
    """`function(args)`. Half precisions are computed in f32."""
    t = args[0].dtype
    if t.is_float and t.bits == 16:
        made = call(f, function, tuple(convert(f, x, F32) for x in args))
        if function in CONDITIONS:
            return made
        # LLVM joins the conversions of a number that was an f64, and calls `__truncdfhf2`, which not every library has.
        return convert(f, made if made.lanes > 1 else f.intrinsic("arithmetic.fence", F32, (made,)), t)
    return CODES[function].emit(f, args)
