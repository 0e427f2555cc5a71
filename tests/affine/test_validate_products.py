"""Validation of subscripts with products, quotients and remainders of indices, which are data to a proof."""

from __future__ import annotations

import pytest

from tensorc_dsl.proof.equivalence.validate import Valid
from tests.affine.test_validate import compared

PACKED = """
program packed(A: f32[20], X: f32[{size}], Y: f32[5]){where} {{
    for i in 5, j in {size} {{
        block Y {{ spatial vi in 5 = i; reduce vj in {size} = j
            init {{ Y[vi] = 0.0 }}
            Y[vi] = Y[vi] + A[min(max(vi, vj) * (vi + 1) / 2 + vj, 19)] * X[vj] }}
    }}
}}
"""

IN_PARTS = """
program packed(A: f32[20], X: f32[{size}], Y: f32[5]){where} {{
    buffer B: f32[20]
    buffer P: f32[5, 2]
    for n in 20 {{ block B {{ spatial vn in 20 = n
        B[vn] = A[vn] }} }}
    for i in 5, h in 2, l in ({size} + 1) / 2 {{
        block P {{ spatial vi in 5 = i; spatial vh in 2 = h; reduce vl in ({size} + 1) / 2 = l
            init {{ P[vi, vh] = 0.0 }}
            P[vi, vh] = P[vi, vh] + (B[min(max(vi, vl * 2 + vh) * (vi + 1) / 2 + vl * 2 + vh, 19)] * X[vl * 2 + vh]
                if vl * 2 + vh < {size} else 0.0) }}
    }}
    for i_1 in 5, h_1 in 2 {{
        block Y {{ spatial vi in 5 = i_1; reduce vh in 2 = h_1
            init {{ Y[vi] = 0.0 }}
            Y[vi] = Y[vi] + P[vi, vh] }}
    }}
}}
"""


@pytest.mark.parametrize("size", ["7", "N"])
def test_a_product_of_indices_decides_an_element(size: str) -> None:
    where = " where N in 1..40" if size == "N" else ""
    whole, parts = (x.format(where=where, size=size) for x in (PACKED, IN_PARTS))
    assert isinstance(compared(whole, parts), Valid)
    for old, new in (
        ("max(vi, vl * 2 + vh)", "max(vi, vl * 2)"),
        ("* (vi + 1) / 2", "* (vi + 2) / 2"),
        ("max(vi, vl", "min(vi, vl"),
        ("/ 2 + vl * 2 + vh", "/ 2 + vl * 2"),
    ):
        assert parts.count(old) == 1
        assert not isinstance(compared(whole, parts.replace(old, new)), Valid)


RING = """
program ring(X: f32[N], Y: f32[N]) where N in 1..40 {
    buffer A: f32[N]
    for i in N { block A { spatial vi in N = i
        A[vi] = X[(vi + 3) % N] * 2.0 } }
    for i_1 in N { block Y { spatial vi in N = i_1
        Y[vi] = A[(vi + N - 1) % N] + A[vi] } }
}
"""
INLINED = """
program ring(X: f32[N], Y: f32[N]) where N in 1..40 {
    for h in (N + 3) / 4, l in 4 { block Y { spatial vi in N = h * 4 + l
        where h * 4 + l < N
        Y[vi] = X[((vi + N - 1) % N + 3) % N] * 2.0 + X[(vi + 3) % N] * 2.0 } }
}
"""


def test_a_remainder_by_an_open_size_stays_in_the_ring() -> None:
    assert isinstance(compared(RING, INLINED), Valid)
    for old, new in (
        ("N - 1) % N + 3", "N - 1) % N + 2"),
        ("X[(vi + 3) % N]", "X[(vi + 4) % N]"),
        ("X[(vi + 3) % N]", "X[vi]"),
    ):
        assert INLINED.count(old) == 1
        assert not isinstance(compared(RING, INLINED.replace(old, new)), Valid)
