"""`stdlib/ops/conv1d.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import CONV1D, Operator, conv_nd, each

OPERATORS: dict[str, Operator] = {
    "conv1d_nlc": Operator(
        conv_nd,
        [
            *each(CONV1D, (1, 11, 3, 5, 3), (2, 7, 1, 1, 1)),
            *each(CONV1D + " stride pad dilation groups", (1, 13, 6, 4, 3, 2, 1, 2, 2)),
            *each(CONV1D + " stride pad_left pad_right dilation", (1, 13, 2, 3, 3, 3, 2, 0, 2)),
            *each(CONV1D + " stride same", (1, 8, 2, 3, 4, 2, 1), (1, 7, 2, 3, 2, 3, 1)),
        ],
    ),
}
