"""Functions of bits: of integers, of signs, and the rounding to `tf32`."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.function import Function, Value, constant_value
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.scalars import binary, compare, select
from tensorc_dsl.ir.dtypes import BOOL, F32

# Functions of bits, and of signs of integers.


def absolute(f: Function, a: Value) -> Value:
    """The value without its sign; the least number has no opposite, and stays."""
    if a.dtype.kind != "int":
        return a
    zero = constant_value(a.dtype, 0, a.lanes)
    return select(f, compare(f, "<", a, zero), binary(f, "-", zero, a), a)


def sign(f: Function, a: Value) -> Value:
    """-1, 0 or 1."""
    one = constant_value(a.dtype, 1, a.lanes)
    above = binary(f, "min", a, one)
    return above if a.dtype.kind == "uint" else binary(f, "max", above, constant_value(a.dtype, -1, a.lanes))


def bitwise(word: str, f: Function, args: tuple[Value, ...]) -> Value:
    """`and` or `or` of two integers."""
    a, b = args
    return f.value(a.dtype, f"{word} {a.type} {a.ref}, {b.ref}", a.lanes)


def inverted(f: Function, args: tuple[Value, ...]) -> Value:
    """All bits in reversed order."""
    (a,) = args
    return f.value(a.dtype, f"xor {a.type} {a.ref}, {constant_value(a.dtype, -1, a.lanes).ref}", a.lanes)


def shift_left(f: Function, args: tuple[Value, ...]) -> Value:
    """The bits some places up; 0 for a number of places that is not below the width, as a negative one."""
    a, places = args
    made = f.value(a.dtype, f"shl {a.type} {a.ref}, {places.ref}", a.lanes)
    return select(f, _below_width(f, places), made, constant_value(a.dtype, 0, a.lanes))


def shift_right(f: Function, args: tuple[Value, ...]) -> Value:
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


def counted(name: str, f: Function, args: tuple[Value, ...]) -> Value:
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


def tf32(x: Lanes) -> Lanes:
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
