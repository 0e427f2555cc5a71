"""Operators that write arithmetic into a function, `x * y + 1.0`, and numbers as sums of two floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tensorc_dsl.backend.llvm.codegen.function import Function, Value, constant_value, element
from tensorc_dsl.backend.llvm.codegen.scalars import binary, compare, convert, invert, select
from tensorc_dsl.backend.llvm.codegen.soft_floats import bits
from tensorc_dsl.ir.dtypes import F32, F64, I32, I64, DType
from tensorc_dsl.ir.expr import BinaryOp, CompareOp

# Operators that write arithmetic into a function: `x * y + 1.0` writes a multiplication and an addition.


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


def times_pair(a: Pair, b: Pair) -> Pair:
    """The product of two pairs."""
    high, low = times(a[0], b[0])
    return plus(high, a[0].times_plus(b[1], a[1].times_plus(b[0], low)))


def over(a: Pair, b: Pair) -> Lanes:
    """The quotient of two pairs of moderate sizes, rounded once, or nearly so."""
    inverse = a[0].constant(1.0) / b[0]
    found = a[0] * inverse
    rest = (-found).times_plus(b[0], a[0]) + (-found).times_plus(b[1], a[1])
    return rest.times_plus(inverse, found)
