"""`stdlib/ops/matmul.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "matmul": Operator(
        np.matmul,
        [
            *each("M N K", (3, 5, 7), (1, 1, 1), (13, 1, 3)),
            *each("M N K", (5, 7, 11), T="f16", Acc="f32"),
            *each("M N K", (5, 7, 11), T="bf16", Acc="f32"),
        ],
    ),
}
