"""The maths functions: the code of each, its method and its largest error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from tensorc_dsl.backend.llvm.codegen.arithmetic import Lanes, binary, compare, convert, select
from tensorc_dsl.backend.llvm.codegen.exponentials import (
    acosh,
    asinh,
    atanh,
    cbrt,
    cosh,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    hypot,
    log,
    log1p,
    log2,
    log10,
    power,
    sigmoid,
    sinh,
    tanh,
)
from tensorc_dsl.backend.llvm.codegen.function import Function, Value, constant_value
from tensorc_dsl.backend.llvm.codegen.trigonometric import acos, asin, atan, atan2, cos, sin, tan
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, F32, DType
from tensorc_dsl.ir.maths import CONDITIONS

Emit = Callable[[Function, tuple[Value, ...]], Value]


@frozen
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
    """The value without its sign; the least integer has no opposite, and stays."""
    a = args[0]
    match a.dtype.kind:
        case "int":
            zero = constant_value(a.dtype, 0, a.lanes)
            return select(f, compare(f, "<", a, zero), binary(f, "-", zero, a), a)
        case "uint" | "bool":
            return a
        case _:
            return f.intrinsic("fabs", a.dtype, args)


def _sign(f: Function, args: tuple[Value, ...]) -> Value:
    """A zero has the sign 0, and NaN has none."""
    a = args[0]
    if not a.dtype.is_float:
        above = binary(f, "min", a, constant_value(a.dtype, 1, a.lanes))
        return above if a.dtype.kind == "uint" else binary(f, "max", above, constant_value(a.dtype, -1, a.lanes))
    x = Lanes(f, a)
    found = (x > 0.0).choose(x.constant(1.0), (x < 0.0).choose(x.constant(-1.0), x.constant(0.0)))
    return x.equals(x).choose(found, x).value


# Functions of the bits of integers.


def _bitwise(word: str, f: Function, args: tuple[Value, ...]) -> Value:
    """`and` or `or` of two integers."""
    a, b = args
    return f.value(a.dtype, f"{word} {a.type} {a.ref}, {b.ref}", a.lanes)


def _inverted(f: Function, args: tuple[Value, ...]) -> Value:
    """All bits in reversed order."""
    (a,) = args
    return f.value(a.dtype, f"xor {a.type} {a.ref}, {constant_value(a.dtype, -1, a.lanes).ref}", a.lanes)


def _shift_left(f: Function, args: tuple[Value, ...]) -> Value:
    """The bits some places up; 0 for a number of places that is not below the width, as a negative one."""
    a, places = args
    made = f.value(a.dtype, f"shl {a.type} {a.ref}, {places.ref}", a.lanes)
    return select(f, _below_width(f, places), made, constant_value(a.dtype, 0, a.lanes))


def _shift_right(f: Function, args: tuple[Value, ...]) -> Value:
    """The bits some places down; what moves in is the sign, which is all there is of a shift that is not below the width."""
    a, places = args
    inside = _below_width(f, places)
    if a.dtype.kind == "uint":
        made = f.value(a.dtype, f"lshr {a.type} {a.ref}, {places.ref}", a.lanes)
        return select(f, inside, made, constant_value(a.dtype, 0, a.lanes))
    most = select(f, inside, places, constant_value(a.dtype, a.dtype.bits - 1, a.lanes))
    return f.value(a.dtype, f"ashr {a.type} {a.ref}, {most.ref}", a.lanes)


def _below_width(f: Function, places: Value) -> Value:
    t = places.dtype
    return f.value(
        BOOL, f"icmp ult {places.type} {places.ref}, {constant_value(t, t.bits, places.lanes).ref}", places.lanes
    )


def _counted(name: str, f: Function, args: tuple[Value, ...]) -> Value:
    """A count by an intrinsic: `ctpop`, `ctlz` or `cttz`; of 0 the last two are the width."""
    (a,) = args
    if name == "ctpop":
        return f.intrinsic(name, a.dtype, args)
    full = f"llvm.{name}.{f'v{a.lanes}' if a.lanes else ''}i{a.dtype.bits}"
    f.module.declare(a.type, full, (a.type, "i1"))
    return f.value(a.dtype, f"call {a.type} @{full}({a.typed}, i1 false)", a.lanes)


# `tf32`: the rounding of operands of tensor cores.


_KEPT = 10
"""The bits of a fraction that are kept, after the first one."""

_LEAST = -126
"""The exponent of the least normal f32: of smaller numbers, bits down to this many places below it are kept."""


def _tf32(x: Lanes) -> Lanes:
    """The nearest number with 11 significant bits, halves away from zero: half a unit is added to the bits of the size, and
    what is below the unit is cut off. NaN stays as it is, since the sum could reach its sign."""
    dropped = (23 if x.value.dtype == F32 else 52) - _KEPT
    bits = x.bits()
    rounded = ((bits + (1 << (dropped - 1))) & -(1 << dropped)).bits()
    if x.value.dtype != F32:
        scale = 2.0 ** (_KEPT - _LEAST)
        small = ((x.size() * scale + 0.5).below() * (1.0 / scale)).signed_as(x)
        rounded = (x.size() < 2.0**_LEAST).choose(small, rounded)
    return x.equals(x).choose(rounded, x)


# The code of each function.


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
    "tf32": Code(_lanes(_tf32), "half a unit is added to the bits, and the rest cut off"),
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
    "bit_and": Code(partial(_bitwise, "and")),
    "bit_or": Code(partial(_bitwise, "or")),
    "bit_not": Code(_inverted),
    "shift_left": Code(_shift_left),
    "shift_right": Code(_shift_right),
    "popcount": Code(partial(_counted, "ctpop")),
    "clz": Code(partial(_counted, "ctlz")),
    "ctz": Code(partial(_counted, "cttz")),
}
"""By name, for each function of `ir.maths`. docs/maths.md describes the methods and how the errors are measured."""


def call(f: Function, function: str, args: tuple[Value, ...], rounded: DType | None = None) -> Value:
    """`function(args)`, of which one of f32 may be `rounded` to a type at once. Half precisions are computed in f32."""
    t = args[0].dtype
    if t.is_float and t.bits == 16:
        made = call(f, function, tuple(convert(f, x, F32) for x in args), t)
        if function in CONDITIONS:
            return made
        # LLVM joins the conversions of a number that was an f64, and calls `__truncdfhf2`, which not every library has.
        return convert(f, made if made.lanes > 1 else f.intrinsic("arithmetic.fence", F32, (made,)), t)
    write = f.module.hardware
    found = None if write is None else write(f, function, args, rounded or t)
    return CODES[function].emit(f, args) if found is None else found
