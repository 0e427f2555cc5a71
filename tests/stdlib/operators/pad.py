"""`stdlib/ops/pad.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, bordered, each

OPERATORS: dict[str, Operator] = {
    "pad_nhwc": Operator(bordered, each("N H W C pad", (1, 3, 5, 2, 1), (2, 1, 1, 3, 2))),
}
