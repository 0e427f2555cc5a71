"""`stdlib/ops/transpose.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "transpose": Operator(np.transpose, each("M N", (5, 7), (1, 3))),
}
