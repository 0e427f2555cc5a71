"""`stdlib/ops/pad.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, each, framed

OPERATORS: dict[str, Operator] = {
    "pad_nhwc": Operator(
        lambda x, **a: framed(x, (1, 1), 0, {"pad": 1} | a)[0],
        [
            *each("N H W C pad", (1, 3, 5, 2, 1), (2, 1, 1, 3, 2)),
            *each("N H W C pad pad_top pad_right", (1, 3, 5, 2, 1, 0, 3)),
        ],
    ),
}
