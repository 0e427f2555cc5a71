"""`stdlib/ops/attention.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, attention, each

OPERATORS: dict[str, Operator] = {
    "attention": Operator(attention, each("B H M N D E", (1, 2, 3, 5, 7, 3), (2, 1, 1, 7, 1, 5))),
}
