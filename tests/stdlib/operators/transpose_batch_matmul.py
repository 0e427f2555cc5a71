"""`stdlib/ops/transpose_batch_matmul.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "transpose_batch_matmul": Operator(
        lambda q, k: np.einsum("bihd,bjhd->bhij", q, k), each("B L H D", (1, 5, 3, 7), (2, 3, 1, 5))
    ),
}
