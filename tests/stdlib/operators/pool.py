"""`stdlib/ops/pool.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, avg_pool, each, max_pool

OPERATORS: dict[str, Operator] = {
    "avg_pool2d_nhwc": Operator(
        avg_pool,
        [
            *each("N H W C", (1, 5, 7, 3), (2, 4, 3, 1)),
            *each("N H W C KH KW stride pad", (1, 5, 5, 3, 3, 3, 2, 1), (1, 7, 5, 1, 3, 1, 1, 1)),
            *each("N H W C KH stride_h pad_right same", (1, 7, 6, 2, 3, 3, 1, 0), (1, 5, 6, 2, 3, 2, 0, 1)),
        ],
    ),
    "max_pool2d_nhwc": Operator(
        max_pool,
        [
            *each("N H W C", (1, 5, 7, 3), (2, 4, 3, 1)),
            *each("N H W C KH KW stride pad", (1, 5, 5, 3, 3, 3, 2, 1), (1, 7, 5, 1, 3, 1, 1, 1)),
            *each("N H W C KH stride_h pad_right same", (1, 7, 6, 2, 3, 3, 1, 0), (1, 5, 6, 2, 3, 2, 0, 1)),
        ],
    ),
}
