"""The maths functions of the language: their arguments, and what proofs and inputs need to know of them.

`reference.maths` has their values and errors, each backend their code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf


class Domain(IntEnum):
    """The floats for which a function has a finite value. A larger domain has a lower value."""

    ALL = -1
    NONNEGATIVE = 0
    POSITIVE = 1


@dataclass(frozen=True, slots=True)
class MathFunction:
    """A function of `count` floats. `words` describes it in terms of its arguments x and y."""

    count: int
    words: str
    domain: Domain = Domain.ALL
    """The domain of x, whatever y is."""
    least: int = -1
    """1 if all values are positive, 0 if none is negative, else -1."""
    at: tuple[tuple[float, float], ...] = ()
    """Arguments with the exact values there."""


MATHS: dict[str, MathFunction] = {
    "exp": MathFunction(1, "e to the power of x", least=1, at=((0, 1), (-inf, 0), (inf, inf))),
    "log": MathFunction(1, "the natural logarithm", Domain.POSITIVE, at=((1, 0), (inf, inf), (0, -inf))),
    "tanh": MathFunction(1, "the hyperbolic tangent", at=((0, 0),)),
    "erf": MathFunction(1, "the error function", at=((0, 0),)),
    "sqrt": MathFunction(1, "the square root", Domain.NONNEGATIVE, least=0, at=((0, 0), (1, 1), (inf, inf))),
    "rsqrt": MathFunction(1, "1 / sqrt(x)", Domain.POSITIVE, least=1),
    "sigmoid": MathFunction(1, "1 / (1 + exp(-x))", least=1),
    "floor": MathFunction(1, "the greatest whole number that is not above x"),
    "ceil": MathFunction(1, "the least whole number that is not below x"),
    "round": MathFunction(1, "the nearest whole number; halves go to the even one"),
    "abs": MathFunction(1, "x without its sign; of integers too", least=0, at=((-inf, inf), (inf, inf))),
    "sin": MathFunction(1, "the sine", at=((0, 0),)),
    "cos": MathFunction(1, "the cosine", at=((0, 1),)),
    "tf32": MathFunction(
        1,
        "x with 11 significant bits, as tensor cores take an f32; halves go away from zero",
        at=((0, 0), (1, 1), (inf, inf), (-inf, -inf)),
    ),
    "pow": MathFunction(2, "x to the power of y", Domain.POSITIVE),
}
"""By name. `abs` also takes integers."""
