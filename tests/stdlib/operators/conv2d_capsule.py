"""`stdlib/ops/conv2d_capsule.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, capsule, each

OPERATORS: dict[str, Operator] = {
    "conv2d_capsule_nhwijc": Operator(
        capsule, each("N H W S CI CO KH KW stride pad", (1, 5, 4, 2, 3, 2, 3, 3, 2, 1), (1, 3, 3, 3, 1, 2, 1, 2, 1, 0))
    ),
}
