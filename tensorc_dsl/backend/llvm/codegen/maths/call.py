"""Selects the code of maths functions. Functions of f32 are our own vector code, or instructions."""

from __future__ import annotations

from collections.abc import Callable

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.maths.erf import erf
from tensorc_dsl.backend.llvm.codegen.maths.exp import exp, sigmoid
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.log import log
from tensorc_dsl.backend.llvm.codegen.maths.pow import power
from tensorc_dsl.backend.llvm.codegen.maths.tanh import tanh
from tensorc_dsl.backend.llvm.codegen.maths.trigonometric import cos, sin
from tensorc_dsl.backend.llvm.codegen.scalars import binary, compare, convert, library, select
from tensorc_dsl.backend.llvm.codegen.values import Value, constant_value
from tensorc_dsl.ir.dtypes import F32

_ROUNDING = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "sqrt": "sqrt"}

_OURS: dict[str, Callable[..., Lanes]] = {
    "exp": exp, "log": log, "tanh": tanh, "erf": erf, "sigmoid": sigmoid, "sin": sin, "cos": cos, "pow": power,
}  # fmt: skip
"""The functions of f32 with code of our own. docs/maths.md has their accuracy and methods."""


def call(f: Function, function: str, args: tuple[Value, ...]) -> Value:
    """`function(args)`. Half precisions are computed in f32; for f64, functions without an instruction are calls per lane."""
    a = args[0]
    t = a.dtype
    if t.is_float and t.bits == 16:
        return convert(f, call(f, function, tuple(convert(f, x, F32) for x in args)), t)
    if function == "abs":
        return _absolute(f, a)
    if function in _ROUNDING:
        return f.intrinsic(_ROUNDING[function], t, args)
    if function == "rsqrt":
        return binary(f, "/", constant_value(t, 1.0, a.lanes), f.intrinsic("sqrt", t, args))
    if t == F32:
        return _OURS[function](*(Lanes(f, x) for x in args)).value
    if function == "sigmoid":
        one, negated = constant_value(t, 1.0, a.lanes), f.value(t, f"fneg {a.typed}", a.lanes)
        return binary(f, "/", one, binary(f, "+", one, library(f, "exp", (negated,))))
    return library(f, function, args)


def _absolute(f: Function, a: Value) -> Value:
    if a.dtype.is_float:
        return f.intrinsic("fabs", a.dtype, (a,))
    if a.dtype.kind != "int":
        return a
    zero = constant_value(a.dtype, 0, a.lanes)
    return select(f, compare(f, "<", a, zero), binary(f, "-", zero, a), a)
