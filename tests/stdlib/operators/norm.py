"""`stdlib/ops/norm.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "norm_bmn": Operator(lambda a: np.linalg.norm(a, axis=(1, 2)), each("B M N", (3, 5, 7), (1, 1, 13))),
}
