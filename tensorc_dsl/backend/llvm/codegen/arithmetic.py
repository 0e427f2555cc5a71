"""Arithmetic on values: operations of one element type, conversions, also of floats that are held as their bits, folds of a
vector; and operators that write them, `x * y + 1.0`, with numbers as sums of two floats."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Self

from tensorc_dsl.backend.llvm.codegen.function import Function, Value, constant_value, element, vector_type, with_dtype
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F32, F64, I32, I64, INDEX, DType, code_of, limits
from tensorc_dsl.ir.expr import Binary, BinaryOp, Cast, CompareOp, Const, Expr, dtype_of
from tensorc_dsl.ir.reductions import FoldOp

# Operations on values of one element type: arithmetic, comparisons, conversions. Operands have equal numbers of lanes.


_FLOAT_COMPARE = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}


def binary(f: Function, op: BinaryOp, a: Value, b: Value) -> Value:
    """`a op b`. Integer division and remainder round down; by 0 they give 0, as in NumPy, and never trap."""
    t = a.dtype
    if op == "%" and t.is_float:
        return convert(f, _remainder(f, convert(f, a, F64), convert(f, b, F64)), t)
    if is_soft(t):
        return convert(f, binary(f, op, convert(f, a, F32), convert(f, b, F32)), t)
    if op in ("min", "max"):
        if t.is_float:  # NaN is propagated, as in NumPy; either of two zeros may be returned
            return f.intrinsic("minimum" if op == "min" else "maximum", t, (a, b), flags="nsz ")
        cond = compare(f, "<" if op == "min" else ">", a, b)
        return select(f, cond, a, b)
    if op == "xor":
        return f.value(t, f"xor {a.type} {a.ref}, {b.ref}", a.lanes)
    if t.is_float:
        word = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}[op]
        return f.value(t, f"{word} {a.type} {a.ref}, {b.ref}", a.lanes)
    if op in ("/", "%"):
        return _divide(f, op, a, b)
    word = {"+": "add", "-": "sub", "*": "mul"}[op]
    flags = " nsw" if t == INDEX else ""
    return f.value(t, f"{word}{flags} {a.type} {a.ref}, {b.ref}", a.lanes)


def _divide(f: Function, op: BinaryOp, a: Value, b: Value) -> Value:
    t, lanes = a.dtype, a.lanes
    zero, one = constant_value(t, 0, lanes), constant_value(t, 1, lanes)
    # With a divisor other than 0 and -1, division cannot trap.
    known = re.fullmatch(r"(splat \(i\d+ )?(-?\d+)\)?", b.ref) is not None and not re.search(r"(^| )(0|-1)\)?$", b.ref)
    if t.kind == "uint":
        by_zero = compare(f, "==", b, zero)
        d = b if known else select(f, by_zero, one, b)
        word = "udiv" if op == "/" else "urem"
        out = f.value(t, f"{word} {a.type} {a.ref}, {d.ref}", lanes)
        return out if known else select(f, by_zero, zero, out)
    d, bad, overflow = b, None, None
    if not known:
        bad = compare(f, "==", b, zero)
        least, minus = constant_value(t, -(1 << (t.bits - 1)), lanes), constant_value(t, -1, lanes)
        overflow = logic(f, "and", compare(f, "==", a, least), compare(f, "==", b, minus))
        d = select(f, logic(f, "or", bad, overflow), one, b)
    quotient = f.value(t, f"sdiv {a.type} {a.ref}, {d.ref}", lanes)
    rest = f.value(t, f"srem {a.type} {a.ref}, {d.ref}", lanes)
    # LLVM divides towards zero; one is subtracted if there is a remainder whose sign is not the divisor's.
    sign = f.value(t, f"xor {a.type} {rest.ref}, {d.ref}", lanes)
    down = logic(f, "and", compare(f, "!=", rest, zero), compare(f, "<", sign, zero))
    if op == "/":
        step = f.value(t, f"sext {vector_type('i1', lanes)} {down.ref} to {a.type}", lanes)
        out = f.value(t, f"add {a.type} {quotient.ref}, {step.ref}", lanes)
    else:
        moved = f.value(t, f"add {a.type} {rest.ref}, {d.ref}", lanes)
        out = select(f, down, moved, rest)
    return out if bad is None else select(f, bad, zero, out)


def _remainder(f: Function, a: Value, b: Value) -> Value:
    """`a % b` of f64: the exact result of C's `fmod`, plus the divisor if the signs differ."""
    rest, zero = library(f, "fmod", (a, b)), constant_value(F64, 0.0, a.lanes)
    other = logic(f, "xor", compare(f, "<", rest, zero), compare(f, "<", b, zero))
    moved = select(f, other, binary(f, "+", rest, b), rest)
    return select(f, compare(f, "==", rest, zero), f.intrinsic("copysign", F64, (zero, b)), moved)


def library(f: Function, name: str, args: tuple[Value, ...]) -> Value:
    """The C library's function of doubles, called lane by lane."""
    f.module.declare("double", name, ("double",) * len(args), "nounwind willreturn memory(none)")

    def one(parts: tuple[Value, ...]) -> Value:
        return f.value(F64, f"call double @{name}({', '.join(p.typed for p in parts)})", 0)

    lanes = args[0].lanes
    if not lanes:
        return one(args)
    return f.gather_lanes([one(tuple(f.lane(a, k) for a in args)) for k in range(lanes)])


def compare(f: Function, op: CompareOp, a: Value, b: Value) -> Value:
    t = a.dtype
    if is_soft(t):
        return compare(f, op, convert(f, a, F32), convert(f, b, F32))
    if t.is_float:
        return f.value(BOOL, f"fcmp {_FLOAT_COMPARE[op]} {a.type} {a.ref}, {b.ref}", a.lanes)
    words = _SIGNED if t.kind == "int" else _UNSIGNED
    return f.value(BOOL, f"icmp {words[op]} {a.type} {a.ref}, {b.ref}", a.lanes)


def logic(f: Function, op: str, a: Value, b: Value) -> Value:
    return f.value(BOOL, f"{op} {a.type} {a.ref}, {b.ref}", a.lanes)


def invert(f: Function, a: Value) -> Value:
    return logic(f, "xor", a, constant_value(BOOL, True, a.lanes))


def select(f: Function, cond: Value, a: Value, b: Value) -> Value:
    """`a` where `cond` holds, else `b`; the condition may be a single one for all lanes."""
    return f.value(a.dtype, f"select {cond.typed}, {a.typed}, {b.typed}", a.lanes)


def any_lane(f: Function, mask: Value) -> str:
    """An i1: whether any lane of a mask is set; for a scalar, its value."""
    if not mask.lanes:
        return mask.ref
    name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
    f.module.declare("i1", name, (mask.type,))
    return f.op(f"call i1 @{name}({mask.typed})")


def convert(f: Function, v: Value, t: DType) -> Value:
    """A conversion as by NumPy's `astype`, except that floats out of an integer's range saturate and NaN becomes 0."""
    s = v.dtype
    if s == t:
        return v
    if t.is_float and t.bits <= 16 and s.bits >= 32:
        # The conversion goes through f32. A value that f32 cannot hold is rounded to odd, so that it is rounded only once.
        v = v if s == F32 else _to_odd_f32(f, convert(f, _to_odd_64(f, v), F64))
        return (
            from_f32(f, v, t)
            if is_soft(t)
            else f.value(t, f"fptrunc {v.typed} to {vector_type('half', v.lanes)}", v.lanes)
        )
    if is_soft(t):
        return from_f32(f, convert(f, v, F32), t)
    if is_soft(s):
        return convert(f, to_f32(f, v), t)
    to = vector_type(element(t), v.lanes)
    if t.kind == "bool":
        return compare(f, "!=", v, constant_value(s, 0, v.lanes))
    if s.is_float and t.is_float:
        word = "fpext" if s.bits < t.bits else "fptrunc"
    elif t.is_float:
        word = "sitofp" if s.kind == "int" else "uitofp"
    elif s.is_float:
        if s.bits < 32:  # LLVM 22 makes the least i16 of the NaN of a half where it has instructions for halves
            return convert(f, convert(f, v, F32), t)
        if v.lanes:
            return _whole(f, v, t)
        name = f"llvm.fpto{'si' if t.kind == 'int' else 'ui'}.sat.i{t.bits}.f{s.bits}"
        f.module.declare(to, name, (v.type,))
        return f.value(t, f"call {to} @{name}({v.typed})", 0)
    elif element(s) == element(t):
        return with_dtype(v, t)
    elif s.bits > t.bits:
        word = "trunc"
    else:
        word = "sext" if s.kind == "int" else "zext"
    return f.value(t, f"{word} {v.typed} to {to}", v.lanes)


def _whole(f: Function, v: Value, t: DType) -> Value:
    """A vector of f32 or f64 as integers: limited first, then converted by instructions that do not saturate.

    LLVM has a conversion that does, for which it takes vectors apart.
    """
    n, (low, high) = v.lanes, limits(t)
    lost = high.bit_length() - (24 if v.dtype == F32 else 53)
    top = high + 1 - 2**lost if lost > 0 else high  # the greatest float that the type holds

    def limited(word: str, a: Value, end: int) -> Value:
        """`a` where it is on this side of the end, and the end instead of other numbers and of NaN."""
        e = constant_value(v.dtype, float(end), n)
        return select(f, f.value(BOOL, f"fcmp {word} {a.type} {a.ref}, {e.ref}", n), a, e)

    inside = limited("olt", limited("ogt", v, low), top)
    held = I32 if t.bits < 32 else t
    word = "fptosi" if held.kind == "int" else "fptoui"
    out = f.value(held, f"{word} {inside.typed} to {vector_type(element(held), n)}", n)
    if top < high:
        beyond = compare(f, ">", v, constant_value(v.dtype, float(top), n))
        out = select(f, beyond, constant_value(held, high, n), out)
    if low < 0:
        out = select(f, compare(f, "==", v, v), out, constant_value(held, 0, n))
    return convert(f, out, t)


def _to_odd_64(f: Function, v: Value) -> Value:
    """A number that f64 can hold: of an integer of more than 53 bits the lowest 11 are 0, and the next is 1 if one was."""
    if v.dtype.is_float or v.dtype.bits < 64:
        return v

    def number(x: int) -> Value:
        return constant_value(v.dtype, x, v.lanes)

    def op(word: str, a: Value, b: Value) -> Value:
        return f.value(v.dtype, f"{word} {a.type} {a.ref}, {b.ref}", v.lanes)

    # The remaining difference beyond 53 bits is the sign extension of a smaller number; an unsigned one has zeros there.
    signed = v.dtype.kind == "int"
    top = op("ashr" if signed else "lshr", v, number(53))
    wide = compare(f, "!=", top, op("ashr", v, number(63)) if signed else number(0))
    lost = compare(f, "!=", op("and", v, number(0x7FF)), number(0))
    odd = op("or", op("and", v, number(~0x7FF)), number(0x800))
    return select(f, logic(f, "and", wide, lost), odd, v)


def _to_odd_f32(f: Function, v: Value) -> Value:
    """An f64 rounded to f32 by rounding to odd: the last bit is set if inexact (Boldo and Melquiond, 2008)."""
    n = v.lanes
    near = f.value(F32, f"fptrunc {v.typed} to {vector_type('float', n)}", n)
    back = f.value(F64, f"fpext {near.typed} to {v.type}", n)
    size, size_back = f.intrinsic("fabs", F64, (v,)), f.intrinsic("fabs", F64, (back,))
    raw = bits(f, near, I32)
    too_large = f.value(BOOL, f"fcmp ogt {size.type} {size_back.ref}, {size.ref}", n)
    down = f.op(f"zext {too_large.typed} to {raw.type}")
    below = f.op(f"sub {raw.type} {raw.ref}, {down}")
    inexact = f.value(BOOL, f"fcmp one {size.type} {size_back.ref}, {size.ref}", n)
    odd = f.op(f"zext {inexact.typed} to {raw.type}")
    return bits(f, Value(I32, f.op(f"or {raw.type} {below}, {odd}"), n), F32)


# Nested minima and maxima, as in rank filters: they are tested for NaN once.
#
# Each propagates NaN, as in NumPy, for which x86 needs a comparison and a choice beside its instruction. The result of an
# expression of nothing else is NaN where one of its leaves is, so the leaves are asked, two with each comparison, and one
# choice does for all.


NEEDS = "avx"
"""The instruction set whose minima do not propagate NaN. Those of AArch64 and of GPUs do."""


@frozen
class Extremes:
    """The minima and maxima of an expression, each behind its operands, and the leaves that they are of.

    Those in `asked` may be NaN.
    """

    nodes: tuple[Binary, ...]
    leaves: tuple[Expr, ...]
    asked: tuple[Expr, ...]


def extremes(e: Expr) -> Extremes | None:
    """The minima and maxima of f32 or f64 that `e` is made of, if it takes fewer instructions to ask their leaves."""
    if not _is_extreme(e):
        return None
    numbers: dict[Expr, bool] = {}
    _collect(e, numbers)
    nodes = tuple(n for n in numbers if isinstance(n, Binary) and _is_extreme(n))
    leaves = tuple(x for x in numbers if not _is_extreme(x))
    asked = tuple(x for x in leaves if not numbers[x])
    apart = sum(1 if numbers[n.lhs] or numbers[n.rhs] else 3 for n in nodes)
    once = len(nodes) + (len(asked) + 1) // 2 + bool(asked)
    return Extremes(nodes, leaves, asked) if once < apart else None


def _is_extreme(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("min", "max") and dtype_of(e).name in ("f32", "f64")


def _collect(e: Expr, numbers: dict[Expr, bool]) -> None:
    """Add the minima and maxima, each behind its operands, and the leaves, with whether each is known not to be NaN."""
    if e in numbers:
        return
    if isinstance(e, Binary) and _is_extreme(e):
        _collect(e.lhs, numbers)
        _collect(e.rhs, numbers)
        numbers[e] = numbers[e.lhs] and numbers[e.rhs]
    else:
        numbers[e] = _is_number(e)


def _is_number(e: Expr) -> bool:
    """Whether the value of a leaf is known not to be NaN: a constant, or one that was an integer."""
    match e:
        case Const(value=value):
            return value == value
        case Cast(operand=x):
            return not dtype_of(x).is_float
        case _:
            return False


def extreme(f: Function, found: Extremes, leaves: Mapping[Expr, Value]) -> Value:
    """The value of the last of the nodes. The values of its leaves have equal numbers of lanes."""
    values = dict(leaves)
    for n in found.nodes:
        a, b = values[n.lhs], values[n.rhs]
        # One instruction: of two values that do not compare it gives the second.
        values[n] = select(f, compare(f, "<" if n.op == "min" else ">", a, b), a, b)
    last = values[found.nodes[-1]]
    asked = [values[x] for x in found.asked]
    if not asked:
        return last
    pairs = zip(asked[::2], [*asked[1::2], asked[-1]], strict=False)
    numbers = [f.value(BOOL, f"fcmp ord {a.type} {a.ref}, {b.ref}", a.lanes) for a, b in pairs]
    return select(f, reduce(lambda x, y: logic(f, "and", x, y), numbers), last, _nan(last))


def _nan(like: Value) -> Value:
    return constant_value(like.dtype, float("nan"), like.lanes)


# Finds sums and differences that saturate, for which vectors have an instruction.
#
# `saturate(u8, u16(a) + u16(b))` computes in 16 bits, compares with 255 and goes back to bytes. `vpaddusb` does the same in
# bytes, and LLVM does not find it.


def saturating(e: Cast) -> tuple[str, Expr, Expr] | None:
    """LLVM's intrinsic that makes `e` of two values of its type, with their expressions; None if there is none."""
    t = e.dtype
    if not t.is_integer or not dtype_of(e.operand).is_integer:
        return None
    core, low, high = _between(e.operand)
    if not isinstance(core, Binary) or core.op not in ("+", "-"):
        return None
    a, b = _narrow(core.lhs, t), _narrow(core.rhs, t)
    least, most = limits(t)
    first, last = (2 * least, 2 * most) if core.op == "+" else (least - most, most - least)
    bottom, top = limits(dtype_of(core))
    if a is None or b is None or first < bottom or top < last:  # the sum in the wider type may wrap around
        return None
    if max(low, first) != max(least, first) or min(high, last) != min(most, last):  # it is limited to something else
        return None
    return f"{'u' if t.kind == 'uint' else 's'}{'add' if core.op == '+' else 'sub'}.sat", a, b


def _between(e: Expr) -> tuple[Expr, float, float]:
    """What is limited by constants, and the constants."""
    match e:
        case Binary(op="max", lhs=inner, rhs=Const(value=end)) | Binary(op="max", lhs=Const(value=end), rhs=inner):
            core, low, high = _between(inner)
            return core, max(low, end), high
        case Binary(op="min", lhs=inner, rhs=Const(value=end)) | Binary(op="min", lhs=Const(value=end), rhs=inner):
            core, low, high = _between(inner)
            return core, low, min(high, end)
        case _:
            return e, -math.inf, math.inf


def _narrow(e: Expr, t: DType) -> Expr | None:
    """The expression in type `t` that is converted to a wider one."""
    match e:
        case Cast(operand=x) if dtype_of(x) == t:
            return x
        case Const(value=n) if limits(t)[0] <= n <= limits(t)[1]:
            return Const(int(n), t)
        case _:
            return None


# Folds vectors into one value: halves are combined until one lane is left.


def fold_lanes(f: Function, op: FoldOp, vectors: Sequence[Value]) -> Value:
    """All lanes of all vectors combined by `op`, in the order of a tree."""
    groups: dict[int, list[Value]] = {}
    for v in vectors:
        groups.setdefault(v.lanes, []).append(v)
    return _tree(f, op, [_within(f, op, _tree(f, op, same)) for same in groups.values()])


def _tree(f: Function, op: FoldOp, values: Sequence[Value]) -> Value:
    while len(values) > 1:
        pairs = [combined(f, op, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *(values[-1:] if len(values) % 2 else ())]
    return values[0]


def _within(f: Function, op: FoldOp, v: Value) -> Value:
    while v.lanes > 1 and v.lanes % 2 == 0:
        half = v.lanes // 2
        v = combined(f, op, _lanes(f, v, 0, half), _lanes(f, v, half, half))
    return _tree(f, op, [f.lane(v, k) for k in range(v.lanes)]) if v.lanes else v


def _lanes(f: Function, v: Value, first: int, count: int) -> Value:
    picked = ", ".join(f"i32 {k}" for k in range(first, first + count))
    return f.value(v.dtype, f"shufflevector {v.typed}, {v.type} poison, <{count} x i32> <{picked}>", count)


def combined(f: Function, op: FoldOp, a: Value, b: Value) -> Value:
    """`a op b`."""
    return logic(f, op, a, b) if op == "and" or op == "or" else binary(f, op, a, b)


# Floats that are held as their bits, bf16 and those of 8 bits: conversions to f32 and from f32, on integers of 32 bits.
#
# LLVM has no type for the latter, and its bf16 needs a library on most targets. The code has no branches and no tables, so a
# vector of any width is a vector here, and it is the same on a GPU. bf16 is the upper half of an f32.


_MANTISSA, _BIAS, _SIZE, _INFINITY, _NAN = 23, 127, 0x7FFFFFFF, 0x7F800000, 0x7FC00000
"""Of f32: bits of the mantissa, bias of the exponent, all bits but the sign, infinity, and a quiet NaN."""


@frozen
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


# Operators that write arithmetic into a function: `x * y + 1.0` writes a multiplication and an addition.


@frozen
class Format:
    """A type of floats: the bits of its fraction, and the largest exponent, which is what exponents are stored plus."""

    fraction: int
    bias: int

    @property
    def rounder(self) -> float:
        """Adding it to a small float leaves its nearest integer in the low bits."""
        return 1.5 * 2.0**self.fraction

    @property
    def rounder_bits(self) -> int:
        return ((self.bias + self.fraction) << self.fraction) + (1 << (self.fraction - 1))


FORMATS: dict[DType, Format] = {F32: Format(23, 127), F64: Format(52, 1023)}


@frozen
class Lanes:
    """A value in a function. A plain number as the other operand is a constant of its type."""

    f: Function
    value: Value

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def format(self) -> Format:
        """That of a float."""
        return FORMATS[self.dtype]

    def to(self, t: DType) -> Self:
        """The value converted to another type."""
        return self._with(convert(self.f, self.value, t))

    def bits(self) -> Self:
        """The bits of a float as an integer, or the reverse."""
        t = {F32: I32, F64: I64, I32: F32, I64: F64}[self.value.dtype]
        return self._with(bits(self.f, self.value, t))

    def constant(self, x: float) -> Self:
        return self._with(constant_value(self.value.dtype, x, self.value.lanes))

    # Floats, and + and - of integers

    def __add__(self, other: Self | float) -> Self:
        return self._binary("+", other)

    def __sub__(self, other: Self | float) -> Self:
        return self._binary("-", other)

    def __mul__(self, other: Self | float) -> Self:
        return self._binary("*", other)

    def __truediv__(self, other: Self | float) -> Self:
        return self._binary("/", other)

    def __neg__(self) -> Self:
        return self._with(self.f.value(self.value.dtype, f"fneg {self.value.typed}", self.value.lanes))

    def times_plus(self, factor: Self | float, term: Self | float) -> Self:
        """`self * factor + term`, rounded once."""
        return self._intrinsic("fma", factor, term)

    def nearest(self) -> Self:
        """The nearest integer, ties to even."""
        return self._intrinsic("roundeven")

    def below(self) -> Self:
        """The greatest integer that is not above it."""
        return self._intrinsic("floor")

    def size(self) -> Self:
        """The absolute value."""
        return self._intrinsic("fabs")

    def root(self) -> Self:
        """The square root."""
        return self._intrinsic("sqrt")

    def signed_as(self, other: Self) -> Self:
        """The value with the sign of `other`."""
        return self._intrinsic("copysign", other)

    def at_least(self, low: float) -> Self:
        """The value, or the number if it is not above that; so for NaN."""
        return (self > low).choose(self, self.constant(low))

    def limited(self, low: float, high: float) -> Self:
        """The value limited to low … high; NaN stays NaN."""
        below = (self < low).choose(self.constant(low), self)
        return (below > high).choose(self.constant(high), below)

    def scaled(self, n: Self) -> Self | None:
        """`self * 2**n` for whole n, rounded once; None if there is no instruction for this number of lanes."""
        f, lanes, bits = self.f, self.value.lanes, self.dtype.bits
        width = 512 // bits
        if "avx512f" not in f.module.features or not lanes or lanes % width:
            return None
        kind, part, mask = self.value.type, f"<{width} x {element(self.dtype)}>", f"i{width}"
        name = f"llvm.x86.avx512.mask.scalef.p{'s' if bits == 32 else 'd'}.512"
        size, short = f"v{lanes}f{bits}", f"v{width}f{bits}"
        f.module.declare(part, name, (part, part, part, mask, "i32"))
        f.module.declare(part, f"llvm.vector.extract.{short}.{size}", (kind, "i64"))
        f.module.declare(kind, f"llvm.vector.insert.{size}.{short}", (kind, part, "i64"))
        out = "poison"
        for k in range(0, lanes, width):
            p, e = (
                f.op(f"call {part} @llvm.vector.extract.{short}.{size}({kind} {x.value.ref}, i64 {k})")
                for x in (self, n)
            )
            # All lanes, in the current rounding mode.
            p = f.op(f"call {part} @{name}({part} {p}, {part} {e}, {part} poison, {mask} -1, i32 4)")
            out = f.op(f"call {kind} @llvm.vector.insert.{size}.{short}({kind} {out}, {part} {p}, i64 {k})")
        return self._with(Value(self.dtype, out, lanes))

    def polynomial(self, coefficients: Sequence[float]) -> Self:
        """The polynomial with these coefficients, the highest power first, by Horner's rule."""
        p = self.constant(coefficients[0])
        for c in coefficients[1:]:
            p = p.times_plus(self, c)
        return p

    # Integers

    def __and__(self, other: Self | int) -> Self:
        return self._integer("and", other)

    def __or__(self, other: Self | int) -> Self:
        return self._integer("or", other)

    def __xor__(self, other: Self | int) -> Self:
        return self._integer("xor", other)

    def __lshift__(self, places: int) -> Self:
        return self._integer("shl", places)

    def __rshift__(self, places: int) -> Self:
        """A logical shift to the right."""
        return self._integer("lshr", places)

    def halved(self) -> Self:
        """Half of an integer, rounded down."""
        return self._integer("ashr", 1)

    # Conditions

    def __lt__(self, other: Self | float) -> Self:
        return self._compare("<", other)

    def __gt__(self, other: Self | float) -> Self:
        return self._compare(">", other)

    def __ge__(self, other: Self | float) -> Self:
        return self._compare(">=", other)

    def equals(self, other: Self | float) -> Self:
        return self._compare("==", other)

    def differs(self, other: Self | float) -> Self:
        return self._compare("!=", other)

    def inverted(self) -> Self:
        """Whether the condition does not hold."""
        return self._with(invert(self.f, self.value))

    def choose(self, then: Self, other: Self) -> Self:
        """Where the condition holds `then`, else `other`."""
        return self._with(select(self.f, self.value, then.value, other.value))

    def _with(self, value: Value) -> Self:
        return type(self)(self.f, value)

    def _other(self, other: Self | float) -> Value:
        return other.value if isinstance(other, Lanes) else self.constant(other).value

    def _binary(self, op: BinaryOp, other: Self | float) -> Self:
        return self._with(binary(self.f, op, self.value, self._other(other)))

    def _compare(self, op: CompareOp, other: Self | float) -> Self:
        return self._with(compare(self.f, op, self.value, self._other(other)))

    def _integer(self, word: str, other: Self | int) -> Self:
        v = self.value
        b = self._other(other)
        return self._with(self.f.value(v.dtype, f"{word} {v.type} {v.ref}, {b.ref}", v.lanes))

    def _intrinsic(self, name: str, *others: Self | float) -> Self:
        args = (self.value, *(self._other(x) for x in others))
        return self._with(self.f.intrinsic(name, self.value.dtype, args))


# Numbers as sums of two floats, the second of which is below the last place of the first, or nearly so.
#
# T. J. Dekker, *A floating-point technique for extending the available precision* (1971); with an fma a product takes two
# instructions (Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., 2018, chapter 4).


Pair = tuple[Lanes, Lanes]


def lost(a: Lanes, b: Lanes, total: Lanes) -> Lanes:
    """What the rounded sum of two floats of any sizes lacks (Knuth's two-sum)."""
    part = total - a
    return (a - (total - part)) + (b - part)


def plus(a: Lanes, b: Lanes) -> Pair:
    """The sum of two floats, of which the first is 0 or the larger one."""
    total = a + b
    return total, b - (total - a)


def times(a: Lanes, b: Lanes) -> Pair:
    """The product of two floats."""
    product = a * b
    return product, a.times_plus(b, -product)


def times_double(a: Pair, b: Pair) -> Pair:
    """The product of two pairs."""
    high, low = times(a[0], b[0])
    return plus(high, a[0].times_plus(b[1], a[1].times_plus(b[0], low)))


def over(a: Pair, b: Pair) -> Lanes:
    """The quotient of two pairs of moderate sizes, rounded once, or nearly so."""
    inverse = a[0].constant(1.0) / b[0]
    found = a[0] * inverse
    rest = (-found).times_plus(b[0], a[0]) + (-found).times_plus(b[1], a[1])
    return rest.times_plus(inverse, found)
