"""`stdlib/ops/logsumexp.tsched`."""

from __future__ import annotations

from scipy import special

from tests.stdlib.numerics import Operator, each

OPERATORS: dict[str, Operator] = {
    "log_sum_exp": Operator(lambda x: special.logsumexp(x, 1), each("M N", (5, 7), (1, 13), (3, 1))),
}
