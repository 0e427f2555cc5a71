"""`stdlib/ops/argmax.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "argmax": Operator(lambda x: x.argmax(1), each("M N", (5, 7), (1, 13), (3, 1))),
}
