"""`stdlib/ops/depthwise.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, conv_nd, each

OPERATORS: dict[str, Operator] = {
    "depthwise_conv2d_nhwc": Operator(
        lambda x, f, **a: conv_nd(x, f[:, :, None], groups=f.shape[-1], **a),
        [
            *each("N H W C KH KW", (1, 5, 3, 7, 3, 3)),
            *each("N H W C KH KW stride pad dilation", (2, 7, 5, 3, 3, 2, 2, 1, 2)),
            *each(
                "N H W C KH KW stride_w pad_top pad_right same",
                (1, 7, 6, 3, 3, 2, 2, 1, 2, 0),
                (1, 6, 7, 2, 3, 3, 2, 0, 0, 1),
            ),
        ],
    ),
}
