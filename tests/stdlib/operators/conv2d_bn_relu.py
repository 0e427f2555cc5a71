"""`stdlib/ops/conv2d_bn_relu.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import CONV2D, Operator, conv_nd, each

OPERATORS: dict[str, Operator] = {
    "conv2d_bn_relu_nhwc": Operator(
        lambda x, f, bias, scale, offset, **a: np.maximum((conv_nd(x, f, **a) + bias) * scale + offset, 0),
        [
            *each(CONV2D, (1, 5, 3, 2, 3, 3, 1)),
            *each(CONV2D + " stride pad", (2, 5, 7, 3, 5, 3, 3, 2, 1)),
            *each(CONV2D + " stride_w pad_bottom same", (1, 5, 7, 2, 3, 3, 2, 2, 1, 1)),
        ],
    ),
}
