"""The maths functions of the language: their arguments, and what proofs and inputs need to know of them.

`reference.maths` has their values and errors, each backend their code.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from math import inf

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType


class Domain(IntEnum):
    """The floats for which a function has a finite value. Up to POSITIVE, a larger domain has a lower value."""

    ALL = -1
    NONNEGATIVE = 0
    POSITIVE = 1
    FROM_ONE = 2
    INSIDE = 3
    """From -1 to 1."""


class Takes(Enum):
    """The types of the arguments, which are all the same."""

    FLOATS = "floats"
    INTEGERS = "integers"
    NUMBERS = "numbers"
    ALL = "numbers and indices"


@frozen
class MathFunction:
    """A function of `count` values of one type. `words` describes it in terms of its arguments x and y."""

    count: int
    words: str
    domain: Domain = Domain.ALL
    """The domain of x, whatever y is."""
    least: int = -1
    """1 if all values are positive, 0 if none is negative, else -1."""
    at: tuple[tuple[float, float], ...] = ()
    """Arguments with the exact values there."""
    takes: Takes = Takes.FLOATS
    tells: bool = False
    """Whether the result is a condition; else it has the type of the arguments."""

    def accepts(self, t: DType) -> bool:
        """Whether the arguments may be of the type. An index has no width, so no function of bits takes one."""
        match self.takes:
            case Takes.FLOATS:
                return t.is_float and t.has_arithmetic
            case Takes.INTEGERS:
                return t.is_integer and t != INDEX
            case Takes.NUMBERS:
                return t not in (BOOL, INDEX) and t.has_arithmetic
            case Takes.ALL:
                return t != BOOL and t.has_arithmetic


MATHS: dict[str, MathFunction] = {
    "exp": MathFunction(1, "e to the power of x", least=1, at=((0, 1), (-inf, 0), (inf, inf))),
    "exp2": MathFunction(1, "2 to the power of x", least=1, at=((0, 1), (1, 2), (-inf, 0), (inf, inf))),
    "expm1": MathFunction(1, "exp(x) - 1, with all digits near 0", at=((0, 0), (-inf, -1), (inf, inf))),
    "log": MathFunction(1, "the natural logarithm", Domain.POSITIVE, at=((1, 0), (inf, inf), (0, -inf))),
    "log2": MathFunction(1, "the logarithm to the base 2", Domain.POSITIVE, at=((1, 0), (2, 1), (inf, inf), (0, -inf))),
    "log10": MathFunction(
        1, "the logarithm to the base 10", Domain.POSITIVE, at=((1, 0), (10, 1), (inf, inf), (0, -inf))
    ),
    "log1p": MathFunction(1, "log(1 + x), with all digits near 0", Domain.INSIDE, at=((0, 0), (inf, inf), (-1, -inf))),
    "tanh": MathFunction(1, "the hyperbolic tangent", at=((0, 0),)),
    "sinh": MathFunction(1, "the hyperbolic sine", at=((0, 0), (inf, inf), (-inf, -inf))),
    "cosh": MathFunction(1, "the hyperbolic cosine", least=1, at=((0, 1), (inf, inf), (-inf, inf))),
    "asinh": MathFunction(1, "the number whose sinh is x", at=((0, 0), (inf, inf), (-inf, -inf))),
    "acosh": MathFunction(1, "the number from 0 on whose cosh is x", Domain.FROM_ONE, least=0, at=((1, 0), (inf, inf))),
    "atanh": MathFunction(1, "the number whose tanh is x", Domain.INSIDE, at=((0, 0), (1, inf), (-1, -inf))),
    "erf": MathFunction(1, "the error function", at=((0, 0),)),
    "erfc": MathFunction(1, "1 - erf(x), with all digits where that is small", least=0, at=((0, 1), (inf, 0))),
    "sqrt": MathFunction(1, "the square root", Domain.NONNEGATIVE, least=0, at=((0, 0), (1, 1), (inf, inf))),
    "rsqrt": MathFunction(1, "1 / sqrt(x)", Domain.POSITIVE, least=1),
    "cbrt": MathFunction(1, "the cube root", at=((0, 0), (1, 1), (8, 2), (inf, inf), (-inf, -inf))),
    "hypot": MathFunction(2, "sqrt(x * x + y * y), without overflow on the way", least=0),
    "sigmoid": MathFunction(1, "1 / (1 + exp(-x))", least=1),
    "floor": MathFunction(1, "the greatest whole number that is not above x"),
    "ceil": MathFunction(1, "the least whole number that is not below x"),
    "trunc": MathFunction(1, "x without its fraction"),
    "round": MathFunction(1, "the nearest whole number; halves go to the even one"),
    "abs": MathFunction(
        1, "x without its sign; of integers and indices too", least=0, at=((-inf, inf), (inf, inf)), takes=Takes.ALL
    ),
    "sign": MathFunction(
        1, "-1, 0 or 1 with the sign of x; of integers too", at=((-inf, -1), (0, 0), (inf, 1)), takes=Takes.NUMBERS
    ),
    "copysign": MathFunction(2, "x with the sign of y, that of a zero too"),
    "sin": MathFunction(1, "the sine", at=((0, 0),)),
    "cos": MathFunction(1, "the cosine", at=((0, 1),)),
    "tan": MathFunction(1, "the tangent", at=((0, 0),)),
    "asin": MathFunction(1, "the angle from -π/2 to π/2 whose sine is x", Domain.INSIDE, at=((0, 0),)),
    "acos": MathFunction(1, "the angle from 0 to π whose cosine is x", Domain.INSIDE, least=0, at=((1, 0),)),
    "atan": MathFunction(1, "the angle between -π/2 and π/2 whose tangent is x", at=((0, 0),)),
    "atan2": MathFunction(2, "the angle from -π to π of the point (y, x): y is its first coordinate, and x its second"),
    "tf32": MathFunction(
        1,
        "x with 11 significant bits, as tensor cores take an f32; halves go away from zero",
        at=((0, 0), (1, 1), (inf, inf), (-inf, -inf)),
    ),
    "pow": MathFunction(2, "x to the power of y", Domain.POSITIVE),
    "isnan": MathFunction(1, "whether x is no number", tells=True),
    "isinf": MathFunction(1, "whether x is infinite", tells=True),
    "isfinite": MathFunction(1, "whether x is a number that is not infinite", tells=True),
    "bit_and": MathFunction(2, "the bits that are set in both integers", takes=Takes.INTEGERS),
    "bit_or": MathFunction(2, "the bits that are set in one of two integers, or in both", takes=Takes.INTEGERS),
    "bit_not": MathFunction(1, "the bits that are not set in an integer", takes=Takes.INTEGERS),
    "shift_left": MathFunction(
        2, "the bits of x, y places up; 0 if y is negative or not below the width", takes=Takes.INTEGERS
    ),
    "shift_right": MathFunction(
        2,
        "the bits of x, y places down; the sign moves in, so it is -1 or 0 if y is negative or not below the width",
        takes=Takes.INTEGERS,
    ),
    "popcount": MathFunction(1, "how many bits of an integer are set", takes=Takes.INTEGERS),
    "clz": MathFunction(
        1, "how many bits of an integer are above the highest that is set: of 0, all of them", takes=Takes.INTEGERS
    ),
    "ctz": MathFunction(
        1, "how many bits of an integer are below the lowest that is set: of 0, all of them", takes=Takes.INTEGERS
    ),
}
"""By name."""

CONDITIONS = frozenset(name for name, m in MATHS.items() if m.tells)
"""The functions whose results are conditions."""

# Functions whose results are rounded to 16 bits at once.


BEFORE_ROUNDING: dict[str, float] = {
    "exp": 2.0**-16,
    "exp2": 2.0**-16,
    "sigmoid": 2.0**-16,
    "tanh": 2.0**-10.9,
}
"""The largest error, relative to the result, of functions of f32 whose result is rounded to 16 bits at once: backends may
take instructions that are as near. The roundoff of f16 is 2^-11, that of bf16 2^-9."""
