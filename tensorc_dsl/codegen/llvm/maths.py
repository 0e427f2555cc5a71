"""Maths functions. `exp` of f32 is a polynomial of our own, so that vector loops stay vectors; the others that processors
lack are calls to the C library, lane by lane.
"""

from __future__ import annotations

from tensorc_dsl.codegen.llvm.function import Function
from tensorc_dsl.codegen.llvm.scalars import binary, bits, compare, convert, select
from tensorc_dsl.codegen.llvm.values import Value, constant_value
from tensorc_dsl.ir.dtypes import F32, F64, I32, DType

_ROUNDING = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "sqrt": "sqrt"}

_LIBRARY = {"log": "log", "tanh": "tanh", "erf": "erf", "sin": "sin", "cos": "cos", "pow": "pow", "exp": "exp"}

# exp(r) - 1 - r over r*r for |r| <= ln(2)/2, highest power first: the coefficients of Cephes' expf (Moshier, 1992).
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)

# ln 2 in two parts, the first with enough zeros at its end that n times it is exact for every exponent n.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4

# Adding 1.5 * 2**23 to a small float leaves its nearest integer in the low bits.
_ROUNDER = 12582912.0


def call(f: Function, function: str, args: tuple[Value, ...]) -> Value:
    """`function(args)`; half precisions are computed in f32."""
    t = args[0].dtype
    if t.is_float and t.bits == 16:
        return convert(f, call(f, function, tuple(convert(f, a, F32) for a in args)), t)
    a = args[0]
    if function == "abs":
        return _absolute(f, a)
    if function in _ROUNDING:
        return f.intrinsic(_ROUNDING[function], t, args)
    one = constant_value(t, 1.0, a.lanes)
    if function == "rsqrt":
        return binary(f, "/", one, f.intrinsic("sqrt", t, args))
    if function == "sigmoid":
        negated = f.value(t, f"fneg {a.typed}", a.lanes)
        return binary(f, "/", one, binary(f, "+", one, call(f, "exp", (negated,))))
    if function == "exp" and t == F32:
        return exp(f, a)
    return _library(f, _LIBRARY[function] + ("f" if t == F32 else ""), t, args)


def _absolute(f: Function, a: Value) -> Value:
    if a.dtype.is_float:
        return f.intrinsic("fabs", a.dtype, (a,))
    if a.dtype.kind != "int":
        return a
    zero = constant_value(a.dtype, 0, a.lanes)
    return select(f, compare(f, "<", a, zero), binary(f, "-", zero, a), a)


def _library(f: Function, name: str, t: DType, args: tuple[Value, ...]) -> Value:
    kind = "float" if t == F32 else "double"
    assert t in (F32, F64)  # half precisions have been widened
    f.module.declare(kind, name, (kind,) * len(args), "nounwind willreturn memory(none)")

    def one(parts: tuple[Value, ...]) -> Value:
        return f.value(t, f"call {kind} @{name}({', '.join(p.typed for p in parts)})", 0)

    lanes = args[0].lanes
    if not lanes:
        return one(args)
    return f.gather_lanes([one(tuple(f.lane(a, k) for a in args)) for k in range(lanes)])


def exp(f: Function, x: Value) -> Value:
    """e**x for f32, within 2 units in the last place; 0 below -104, infinity above 89, NaN for NaN.

    x = n*ln2 + r with |r| <= ln2/2, then 2**n * exp(r). 2**n is applied as two factors, so that results below the least
    normal number are rounded once, and those above the largest overflow.
    """
    n = x.lanes

    def number(value: float) -> Value:
        return constant_value(F32, value, n)

    def fma(a: Value, b: Value, c: Value) -> Value:
        return f.intrinsic("fma", F32, (a, b, c))

    # NaN compares false and so passes through both.
    x = select(f, compare(f, ">", x, number(89.0)), number(89.0), x)
    x = select(f, compare(f, "<", x, number(-104.0)), number(-104.0), x)
    shifted = fma(x, number(1.4426950408889634), number(_ROUNDER))
    whole = binary(f, "-", shifted, number(_ROUNDER))
    r = fma(whole, number(-_LN2_HIGH), x)
    r = fma(whole, number(-_LN2_LOW), r)
    p = number(_EXP[0])
    for c in _EXP[1:]:
        p = fma(p, r, number(c))
    p = fma(p, binary(f, "*", r, r), r)
    p = binary(f, "+", p, number(1.0))

    def integer(op: str, a: Value, b: Value) -> Value:
        return f.value(I32, f"{op} {a.type} {a.ref}, {b.ref}", n)

    rounder = int.from_bytes(bytes.fromhex("4b400000"), "big")  # the bits of _ROUNDER
    exponent = integer("sub", bits(f, shifted, I32), constant_value(I32, rounder, n))
    half = integer("ashr", exponent, constant_value(I32, 1, n))
    for part in (half, integer("sub", exponent, half)):
        biased = integer("add", part, constant_value(I32, 127, n))
        power = bits(f, integer("shl", biased, constant_value(I32, 23, n)), F32)
        p = binary(f, "*", p, power)
    return p
