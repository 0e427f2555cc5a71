"""`stdlib/ops/gelu.tsched`."""

from __future__ import annotations

from scipy import special

from tests.stdlib.numerics import Operator, each, gelu_tanh

OPERATORS: dict[str, Operator] = {
    "gelu": Operator(lambda x: x * special.ndtr(x), each("M N", (5, 7), (1, 13))),
    "gelu_tanh": Operator(gelu_tanh, each("M N", (5, 7), (1, 13))),
}
