"""`stdlib/ops/conv2d.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import CONV2D, Operator, conv_nd, each

OPERATORS: dict[str, Operator] = {
    "conv2d_nhwc": Operator(
        conv_nd,
        [
            *each(CONV2D, (1, 5, 7, 3, 5, 3, 3), (1, 1, 1, 1, 1, 1, 1)),
            *each(CONV2D + " stride pad", (2, 7, 5, 3, 2, 3, 1, 2, 1)),
            *each(CONV2D + " pad dilation", (1, 7, 7, 3, 2, 3, 3, 2, 2)),
            *each(CONV2D + " pad groups", (1, 5, 3, 6, 9, 3, 3, 1, 3)),
            *each(CONV2D + " stride_h pad_left pad_bottom dilation_w", (1, 7, 9, 3, 2, 3, 2, 2, 2, 1, 3)),
            *each(CONV2D + " stride same", (1, 7, 8, 3, 2, 3, 4, 2, 1), (1, 5, 9, 2, 1, 2, 2, 3, 1)),
        ],
    ),
}
