"""`stdlib/ops/softmax.tsched`."""

from __future__ import annotations

from scipy import special

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "softmax": Operator(lambda x: special.softmax(x, 1), each("M N", (5, 7), (1, 13), (3, 1))),
}
