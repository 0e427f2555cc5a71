"""`stdlib/ops/gather.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "embedding": Operator(
        lambda w, i: np.take(w, i, axis=0, mode="clip"),
        [*each("V D B L", (11, 5, 3, 4), (1, 1, 2, 3)), {"V": 13, "D": 3, "B": 2, "L": 5, "Index": "u8"}],
    ),
    "embedding_bag": Operator(
        lambda w, i: np.take(w, i, axis=0, mode="clip").sum(1),
        each("V D B L", (11, 5, 3, 4), (1, 1, 2, 1), (7, 3, 1, 13)),
    ),
    "gather_rows": Operator(
        lambda w, i: np.take(w, i, axis=0, mode="clip"), each("V D N", (11, 5, 7), (1, 1, 3), (13, 3, 1))
    ),
}
