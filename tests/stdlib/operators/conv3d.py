"""`stdlib/ops/conv3d.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import CONV3D, Operator, conv_nd, each

OPERATORS: dict[str, Operator] = {
    "conv3d_ndhwc": Operator(
        conv_nd,
        [
            *each(CONV3D, (1, 3, 4, 3, 3, 2, 2, 3, 1)),
            *each(CONV3D + " stride pad", (1, 3, 5, 3, 2, 3, 3, 3, 3, 2, 1)),
            *each(CONV3D + " stride_d dilation_h pad_front pad_right", (1, 4, 5, 6, 1, 2, 2, 2, 3, 2, 2, 1, 2)),
            *each(CONV3D + " stride same", (1, 3, 4, 5, 1, 2, 3, 2, 2, 2, 1)),
            *each(CONV3D + " dilation groups", (1, 5, 5, 3, 4, 2, 2, 3, 1, 2, 2)),
        ],
    ),
}
