"""`stdlib/ops/dense.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "dense": Operator(lambda x, w, b: np.maximum(x @ w + b, 0), each("M N K", (3, 5, 7), (1, 13, 1))),
}
