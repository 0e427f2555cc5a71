"""`stdlib/ops/concatenate.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "concatenate": Operator(lambda a, b: np.concatenate([a, b]), each("M K N", (3, 5, 7), (1, 1, 1), (2, 1, 3))),
}
