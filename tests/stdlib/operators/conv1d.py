"""`stdlib/ops/conv1d.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import CONV1D, Operator, conv, each

OPERATORS: dict[str, Operator] = {
    "conv1d_nlc": Operator(
        conv,
        [
            *each(CONV1D, (1, 11, 3, 5, 3), (2, 7, 1, 1, 1)),
            *each(CONV1D + " stride pad dilation groups", (1, 13, 6, 4, 3, 2, 1, 2, 2)),
        ],
    ),
}
