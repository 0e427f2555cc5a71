"""`stdlib/ops/winograd.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import (
    IN_2,
    OUT_2,
    WEIGHT_2,
    WEIGHT_4,
    Operator,
    each,
    signs,
    winograd,
    winograd_weight,
    with_weight,
)

OPERATORS: dict[str, Operator] = {
    "conv2d_winograd_2x2_nhwc": Operator(
        winograd,
        [*each("N H W CI CO", (1, 5, 6, 3, 2)), *each("N H W CI CO pad", (2, 3, 4, 2, 3, 1))],
        with_weight(signs(4)[:, None] * WEIGHT_2),
    ),
    "conv2d_winograd_4x4_nhwc": Operator(
        winograd,
        [*each("N H W CI CO", (1, 6, 3, 3, 2)), *each("N H W CI CO pad", (1, 7, 5, 2, 3, 1))],
        with_weight(WEIGHT_4),
        loss=2e-5,
    ),
    "winograd_nhwc": Operator(
        winograd,
        each("N H W CI CO A Q pad", (1, 5, 4, 2, 3, 4, 2, 1)),
        with_weight(WEIGHT_2, IN_2, OUT_2),
    ),
    "winograd_weight_2x2": Operator(lambda f: winograd_weight(f, WEIGHT_2), each("CI CO", (3, 2), (1, 5))),
    "winograd_weight_4x4": Operator(lambda f: winograd_weight(f, WEIGHT_4), each("CI CO", (3, 2), (1, 5))),
}
