"""`stdlib/ops/conv2d_transpose.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import CONV2D, Operator, each, transposed

OPERATORS: dict[str, Operator] = {
    "conv2d_transpose_nhwc": Operator(
        transposed,
        [
            *each(CONV2D + " stride pad", (1, 3, 4, 3, 2, 4, 4, 2, 1), (2, 2, 3, 1, 3, 3, 2, 3, 0)),
            *each(CONV2D + " pad", (1, 5, 5, 2, 1, 2, 2, 1), (1, 6, 7, 2, 3, 2, 2, 2)),
            *each(CONV2D + " stride pad", (1, 5, 4, 3, 2, 2, 3, 2, 3)),
            *each(CONV2D + " stride_h stride_w pad_top pad_right", (1, 3, 4, 2, 3, 3, 4, 3, 2, 2, 1)),
            *each(CONV2D + " stride_w pad_left pad_bottom same", (1, 3, 4, 2, 3, 3, 2, 4, 1, 1, 1)),
            *each(CONV2D + " stride same", (1, 3, 4, 2, 3, 4, 3, 2, 1)),
        ],
    ),
}
