"""`stdlib/ops/rms_norm.tsched`."""

from __future__ import annotations

from tests.stdlib.numerics import Operator, each, rms_norm

OPERATORS: dict[str, Operator] = {
    "rms_norm": Operator(rms_norm, [*each("M N", (5, 7), (1, 13)), {"M": 3, "N": 1, "eps": 0.5}]),
}
