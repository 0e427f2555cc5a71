"""Remainders of floats in computes: one meaning in the reference, the interpreter and the kernel, at every edge."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import narrow
from tensorc_dsl.ir.dtypes import BF16, F16, F32, F64, DType
from tensorc_dsl.reference.tolerance import bounded
from tests.compute.test_meaning import check_program
from tests.compute.texts import build, parsed

EDGES = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 3.0, -3.0, 7.5, -7.5, 60000.0, -60000.0, 6e-8, -6e-8, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("t", [F16, BF16, F32, F64], ids=str)
def test_remainders_of_floats_at_every_edge(t: DType) -> None:
    text = f"compute f(A: {t}[M], B: {t}[N]) -> C: {t}[M, N] {{ C[i, j] = A[i] % B[j] }}"
    sizes = {"M": len(EDGES), "N": len(EDGES)}
    given = {name: narrow(np.array(EDGES), t) for name in "AB"}
    check_program(build(text, **sizes), *parsed(text), sizes, 0, given)


@pytest.mark.parametrize(
    "value", ["A[i] % 1.0", "1.0 % A[i]", "-A[i] % 0.3", "sum[k] (A[k] % A[i])", "floor(A[i] / 0.3) + A[i] % 0.3"]
)
def test_remainders_stand_where_other_arithmetic_does(value: str) -> None:
    text = f"compute f(A: f32[M]) -> C: f32[M] {{ C[i] = {value} }}"
    check_program(build(text, M=9), *parsed(text), {"M": 9}, 0)


def test_what_is_exact_is_held_to_a_rounding_and_what_may_jump_is_not() -> None:
    given = {"A": np.array([5.25, 3.0], np.float32), "B": np.array([2.0, 1.0], np.float32)}
    plain = build("compute f(A: f32[M], B: f32[M]) -> C: f32[M] { C[i] = A[i] % B[i] }", M=2)
    assert bounded(plain, given)[1]["C"].max() < 1e-5
    rounded = build("compute f(A: f32[M], B: f32[M]) -> C: f32[M] { C[i] = (A[i] + B[i]) % B[i] }", M=2)
    allowed = bounded(rounded, given)[1]["C"]
    assert allowed[0] < 1e-5 < 0.9 < allowed[1]
