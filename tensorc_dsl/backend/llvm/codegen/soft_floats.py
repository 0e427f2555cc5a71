"""Floats that are held as their bits, bf16 and those of 8 bits: conversions to f32 and from f32, on integers of 32 bits.

LLVM has no type for the latter, and its bf16 needs a library on most targets. The code has no branches and no tables, so a
vector of any width is a vector here, and it is the same on a GPU. bf16 is the upper half of an f32.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.backend.llvm.codegen.function import Function, Value, constant_value, element, vector_type, with_dtype
from tensorc_dsl.ir.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F32, I32, DType, code_of

_MANTISSA, _BIAS, _SIZE, _INFINITY, _NAN = 23, 127, 0x7FFFFFFF, 0x7F800000, 0x7FC00000
"""Of f32: bits of the mantissa, bias of the exponent, all bits but the sign, infinity, and a quiet NaN."""


@dataclass(frozen=True, slots=True)
class _Octet:
    """A float of 8 bits: bits of its mantissa, bias of its exponent, and its code of infinity, or of NaN if it has none."""

    mantissa: int
    bias: int
    top: int
    has_infinity: bool

    @property
    def step(self) -> float:
        """The least number above 0."""
        return 2.0 ** (1 - self.bias - self.mantissa)


_OCTETS = {F8E4M3: _Octet(3, 7, 0x7F, False), F8E5M2: _Octet(2, 15, 0x7C, True)}


def is_soft(t: DType) -> bool:
    """Whether a float is held as its bits."""
    return t == BF16 or t in _OCTETS


def bits(f: Function, v: Value, t: DType) -> Value:
    """The same bits as another type of the same width."""
    to = vector_type(element(t), v.lanes)
    return with_dtype(Value(t, f.op(f"bitcast {v.typed} to {to}"), v.lanes), t)


class _Words:
    """Operations on the words of 32 bits of some lanes."""

    def __init__(self, f: Function, lanes: int) -> None:
        self.f, self.lanes = f, lanes

    def number(self, x: int) -> Value:
        return constant_value(I32, x - (1 << 32) if x >> 31 else x, self.lanes)

    def op(self, word: str, a: Value, b: Value | int) -> Value:
        b = self.number(b) if isinstance(b, int) else b
        return self.f.value(I32, f"{word} {a.type} {a.ref}, {b.ref}", self.lanes)

    def test(self, word: str, a: Value, b: int) -> Value:
        return self.f.value(BOOL, f"icmp {word} {a.type} {a.ref}, {self.number(b).ref}", self.lanes)

    def choose(self, cond: Value, a: Value | int, b: Value) -> Value:
        a = self.number(a) if isinstance(a, int) else a
        return self.f.value(b.dtype, f"select {cond.typed}, {a.typed}, {b.typed}", self.lanes)

    def wide(self, v: Value) -> Value:
        return Value(I32, self.f.op(f"zext {v.typed} to {vector_type('i32', self.lanes)}"), self.lanes)

    def short(self, a: Value, t: DType) -> Value:
        return self.f.value(t, f"trunc {a.typed} to {vector_type(element(t), self.lanes)}", self.lanes)

    def rounded(self, a: Value, lost: int) -> Value:
        """The word without its lowest bits, rounded to nearest, ties to even."""
        odd = self.op("and", self.op("lshr", a, lost), 1)
        return self.op("lshr", self.op("add", self.op("add", a, (1 << (lost - 1)) - 1), odd), lost)


def to_f32(f: Function, v: Value) -> Value:
    """The value as f32, which holds it."""
    w = _Words(f, v.lanes)
    code = w.wide(v)
    if v.dtype == BF16:
        return bits(f, w.op("shl", code, 16), F32)
    o = _OCTETS[v.dtype]
    size, sign = w.op("and", code, 0x7F), w.op("shl", w.op("and", code, 0x80), 24)
    normal = w.op("add", w.op("shl", size, _MANTISSA - o.mantissa), (_BIAS - o.bias) << _MANTISSA)
    units = f.value(F32, f"uitofp {size.typed} to {vector_type('float', v.lanes)}", v.lanes)
    step = constant_value(F32, o.step, v.lanes)
    small = bits(f, f.value(F32, f"fmul {units.type} {units.ref}, {step.ref}", v.lanes), I32)
    out = w.choose(w.test("ult", size, 1 << o.mantissa), small, normal)
    if o.has_infinity:
        out = w.choose(w.test("eq", size, o.top), _INFINITY, out)
    out = w.choose(w.test("ugt" if o.has_infinity else "eq", size, o.top), _NAN, out)
    return bits(f, w.op("or", out, sign), F32)


def from_f32(f: Function, v: Value, t: DType) -> Value:
    """The value of a soft float that is nearest to an f32, ties to even; beyond its largest number infinity, or NaN if it has
    none. Of NaN there is one code.
    """
    w = _Words(f, v.lanes)
    raw = bits(f, v, I32)
    is_nan = f.value(BOOL, f"fcmp uno {v.type} {v.ref}, {v.ref}", v.lanes)
    nan = w.number(code_of(float("nan"), t))
    if t == BF16:
        return w.short(w.choose(is_nan, nan, w.rounded(raw, 16)), BF16)
    o = _OCTETS[t]
    size, sign = w.op("and", raw, _SIZE), w.op("lshr", w.op("and", raw, _SIZE + 1), 24)
    lost = _MANTISSA - o.mantissa
    normal = w.op("sub", w.rounded(size, lost), (_BIAS - o.bias) << o.mantissa)
    # The last bit of a sum with this number is the least number above 0, so the sum rounds to multiples of that.
    first = constant_value(F32, o.step * 2.0**_MANTISSA, v.lanes)
    magnitude = bits(f, size, F32)
    total = bits(f, f.value(F32, f"fadd {first.type} {magnitude.ref}, {first.ref}", v.lanes), I32)
    small = w.op("sub", total, code_of(o.step * 2.0**_MANTISSA, F32))
    code = w.choose(w.test("ult", size, code_of(o.step * 2.0**o.mantissa, F32)), small, normal)
    code = w.choose(w.test("ugt", code, o.top), o.top, code)
    none = is_nan if o.has_infinity else w.test("eq", code, o.top)
    return w.short(w.choose(none, nan, w.op("or", code, sign)), t)
