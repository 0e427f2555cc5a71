"""Partial results that are combined across the lanes of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import format_kernel
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tests.codegen.native import program, run

TEXT = """
program reduced(A: {t}[3, {k}], B: {t}[3]) {{
    buffer S: {t}[3]
    for i in 3, k in {k} {{
        block S {{
            spatial vi in 3 = i
            reduce vk in {k} = k
            init {{ S[vi] = {start} }}
            S[vi] = {step}
        }}
    }}
    for i_1 in 3 {{
        block B {{
            spatial vi in 3 = i_1
            B[vi] = S[vi]
        }}
    }}
}}
"""
STEPS = {
    "sum": "S[vi] + A[vi, vk]",
    "prod": "S[vi] * A[vi, vk]",
    "max": "max(S[vi], A[vi, vk])",
    "min": "min(S[vi], A[vi, vk])",
    "any": "S[vi] or A[vi, vk]",
    "all": "S[vi] and A[vi, vk]",
}


def factored(t: str, reducer: str, start: str, k: int, lanes: int) -> Program:
    p = program(TEXT.format(t=t, k=k, start=start, step=STEPS[reducer]))
    p = apply(p, "compute_at", BlockRef("S"), LoopRef("i_1")).program
    p = apply(p, "split", LoopRef("k"), (None, lanes), partial=True).program
    p = apply(p, "rfactor", BlockRef("S"), LoopRef("k_1"), -1).program
    return apply(p, "vectorize", LoopRef("k_1")).program


@pytest.mark.corpus
@pytest.mark.parametrize("lanes", [4, 7, 16, 20, 64])
@pytest.mark.parametrize(
    ("t", "reducer", "start"),
    [
        ("f32", "sum", "0.5"),
        ("f64", "prod", "1.0"),
        ("f32", "max", "-inf"),
        ("f16", "min", "inf"),
        ("bf16", "max", "-inf"),
        ("i32", "sum", "7"),
        ("u8", "max", "0"),
        ("i64", "min", "9"),
        ("bool", "any", "false"),
        ("bool", "all", "true"),
    ],
)
def test_every_operation_and_type(t: str, reducer: str, start: str, lanes: int) -> None:
    p = factored(t, reducer, start, 70, lanes)
    assert "vectorized for k_1_1" in format_kernel(lower_cpu(p))
    rng = np.random.default_rng(0)
    a: Array = rng.integers(1, 4, (3, 70))
    if t == "bool":
        a = a > np.array([[0], [3], [2]])
    elif t == "bf16":
        a = (np.asarray(a, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif reducer == "prod":
        a = 1 + a / 100
    a = np.ascontiguousarray(a.astype({"f16": "float16", "f64": "float64", "f32": "float32", "i32": "int32",
                                       "u8": "uint8", "i64": "int64"}.get(t, a.dtype)))  # fmt: skip
    want = interpret(p, {"A": a})["B"]
    got = run(p, {"A": a})["B"]
    if t == "bf16":
        got = (got.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_nan_in_any_lane_is_kept() -> None:
    p = factored("f32", "max", "-inf", 40, 16)
    a = np.zeros((3, 40), np.float32)
    a[0, 3] = a[1, 39] = np.nan
    assert np.isnan(run(p, {"A": a})["B"]).tolist() == [True, True, False]


def test_a_chain_over_memory_keeps_its_order() -> None:
    p = program(TEXT.format(t="f32", k=40, start="0.0", step=STEPS["sum"]))
    assert "vectorized" not in format_kernel(lower_cpu(p))
