"""`stdlib/ops/quantized.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import CONV2D, Operator, each, quantized_conv

OPERATORS: dict[str, Operator] = {
    "quantized_conv2d_nhwc": Operator(
        quantized_conv,
        [
            *each(CONV2D, (1, 5, 3, 2, 3, 3, 1)),
            *each(CONV2D + " stride pad zero", (1, 5, 7, 3, 5, 3, 3, 2, 1, 7)),
            *each(CONV2D + " stride_h pad_left zero", (1, 5, 7, 3, 5, 3, 3, 2, 1, 7)),
        ],
    ),
    "quantized_matmul": Operator(
        lambda a, b, scale, zero=0: ((a - zero) @ b) * scale,
        [*each("M N K", (3, 5, 7), (1, 1, 1)), *each("M N K zero", (5, 3, 11, 128))],
    ),
}
