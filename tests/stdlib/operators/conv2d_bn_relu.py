"""`stdlib/ops/conv2d_bn_relu.tsched`."""

from __future__ import annotations

import numpy as np

from tests.stdlib.numerics import CONV2D, Operator, conv, each

OPERATORS: dict[str, Operator] = {
    "conv2d_bn_relu_nhwc": Operator(
        lambda x, f, bias, scale, offset, **a: np.maximum((conv(x, f, **a) + bias) * scale + offset, 0),
        [*each(CONV2D, (1, 5, 3, 2, 3, 3, 1)), *each(CONV2D + " stride pad", (2, 5, 7, 3, 5, 3, 3, 2, 1))],
    ),
}
