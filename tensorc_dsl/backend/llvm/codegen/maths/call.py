"""The code of each maths function, and its accuracy. Functions of f32 are our own vector code, or instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.maths.erf import erf
from tensorc_dsl.backend.llvm.codegen.maths.exp import exp, sigmoid
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.log import log
from tensorc_dsl.backend.llvm.codegen.maths.pow import power
from tensorc_dsl.backend.llvm.codegen.maths.tanh import tanh
from tensorc_dsl.backend.llvm.codegen.maths.tf32 import tf32
from tensorc_dsl.backend.llvm.codegen.maths.trigonometric import cos, sin
from tensorc_dsl.backend.llvm.codegen.scalars import binary, compare, convert, library, select
from tensorc_dsl.backend.llvm.codegen.values import Value, constant_value
from tensorc_dsl.ir.dtypes import F32

Emit = Callable[[Function, tuple[Value, ...]], Value]


@dataclass(frozen=True, slots=True)
class Code:
    """`emit` makes the value of floats of 32 or 64 bits.

    The other fields are of f32: the method, the largest error in ulps that was measured, None if every result is the nearest
    float, and the arguments for which this holds.
    """

    emit: Emit
    method: str = "an instruction"
    ulps: float | None = None
    arguments: str = "all"


def _instruction(name: str) -> Code:
    """One instruction of LLVM."""
    return Code(lambda f, args: f.intrinsic(name, args[0].dtype, args))


def _lanes(function: Callable[..., Lanes], otherwise: Emit) -> Emit:
    """Code of our own for f32, and the other for f64."""

    def emit(f: Function, args: tuple[Value, ...]) -> Value:
        if args[0].dtype == F32:
            return function(*(Lanes(f, x) for x in args)).value
        return otherwise(f, args)

    return emit


def _library(name: str) -> Emit:
    """A call of the C library for each lane."""
    return lambda f, args: library(f, name, args)


def _rsqrt(f: Function, args: tuple[Value, ...]) -> Value:
    a = args[0]
    return binary(f, "/", constant_value(a.dtype, 1.0, a.lanes), f.intrinsic("sqrt", a.dtype, args))


def _sigmoid(f: Function, args: tuple[Value, ...]) -> Value:
    a = args[0]
    one, negated = constant_value(a.dtype, 1.0, a.lanes), f.value(a.dtype, f"fneg {a.typed}", a.lanes)
    return binary(f, "/", one, binary(f, "+", one, library(f, "exp", (negated,))))


_ANGLES = "x = n π/2 + r in f64; two polynomials in r²", 1.54, "all, up to 2¹²⁸"

CODES: dict[str, Code] = {
    "exp": Code(
        _lanes(exp, _library("exp")),
        "x = n ln 2 + r; a polynomial in r; 2ⁿ by AVX-512's `vscalefps`, or in two factors: the same results",
        1.03,
        "all; subnormal results included",
    ),
    "log": Code(
        _lanes(log, _library("log")),
        "x = 2ᵉ m; a polynomial in m − 1, √½ ≤ m < √2",
        0.86,
        "all; subnormal ones included",
    ),
    "tanh": Code(
        _lanes(tanh, _library("tanh")), "below 0.625 a polynomial in x², above it 1 − 2 / (exp(2x) + 1)", 1.34
    ),
    "erf": Code(_lanes(erf, _library("erf")), "below 1 a polynomial in x², above it 1 − exp(polynomial)", 1.08),
    "sigmoid": Code(_lanes(sigmoid, _sigmoid), "with z = exp(−|x|) and w = z / (1 + z): 1 − w, or z − z w", 1.66),
    "rsqrt": Code(_rsqrt, "1 / sqrt(x), two instructions that round correctly", 1.5),
    "sin": Code(_lanes(sin, _library("sin")), *_ANGLES),
    "cos": Code(_lanes(cos, _library("cos")), *_ANGLES),
    "pow": Code(_lanes(power, _library("pow")), "2^(y log₂ x) in f64", 0.51),
    "tf32": Code(
        lambda f, args: tf32(Lanes(f, args[0])).value, "half a unit is added to the bits, and the rest cut off"
    ),
    "sqrt": _instruction("sqrt"),
    "floor": _instruction("floor"),
    "ceil": _instruction("ceil"),
    "round": _instruction("roundeven"),
    "abs": _instruction("fabs"),
}
"""By name, for each function of `ir.maths`. docs/maths.md describes the methods and how the errors are measured."""


def call(f: Function, function: str, args: tuple[Value, ...]) -> Value:
    """`function(args)`. Half precisions are computed in f32; for f64, functions without an instruction are calls per lane."""
    t = args[0].dtype
    if not t.is_float:
        return _absolute(f, args[0])  # the only function of integers
    if t.bits == 16:
        return convert(f, call(f, function, tuple(convert(f, x, F32) for x in args)), t)
    return CODES[function].emit(f, args)


def _absolute(f: Function, a: Value) -> Value:
    if a.dtype.kind != "int":
        return a
    zero = constant_value(a.dtype, 0, a.lanes)
    return select(f, compare(f, "<", a, zero), binary(f, "-", zero, a), a)
