"""`stdlib/ops/cumsum.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "cumsum": Operator(lambda x: x.cumsum(0), each("N M", (7, 5), (1, 3), (13, 1))),
}
