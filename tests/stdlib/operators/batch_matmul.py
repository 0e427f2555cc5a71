"""`stdlib/ops/batch_matmul.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "batch_matmul": Operator(
        np.matmul,
        [*each("G M N K", (3, 5, 7, 3), (1, 1, 11, 5)), *each("G M N K", (2, 3, 5, 7), T="bf16", Acc="f32")],
    ),
}
