"""Scans by the threads of a block and by many blocks: exact in each order of threads, by shuffles, in three kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tensorc_dsl.api import Task, loads
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.sass import registers_of, tool
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.trace.handlers import condition
from tests.gpu.kernels import emulated, ptx, whole

TEXT = """
use std.gpu.default
use std.gpu.targets.{sm_80}
use std.ops.{cumsum}

compute rows(X: T[M, N]; T: dtype) -> Y: T[M, N] { Y[i, t] = scan[t] init X[i, 0] step Y[i, t - 1] + X[i, t] }
compute back(X: i32[N]) -> Y: i32[N] { Y[t] = scan[t] init X[N - 1] step max(X[t], Y[t + 1]) }
compute falling(X: i32[N]) -> Y: i32[N] { Y[t] = scan[t] init X[N - 1] step min(X[N - 1 - t], Y[t - 1]) }
compute products(X: i32[M, N]) -> Y: i32[M, N] { Y[i, t] = scan[t] init X[i, 0] step X[i, t] * Y[i, t - 1] }
"""

CASES = {
    "one warp": ("rows(M=3, N=61, T=i32)", {"each": 2, "width": 32}, 1),
    "warps": ("rows(M=2, N=509, T=i32)", {"each": 4, "width": 128}, 1),
    "columns": ("cumsum(N=131, M=5, T=i32)", {"each": 2, "width": 128}, 1),
    "three kernels": ("rows(M=2, N=1031, T=i32)", {"each": 2, "width": 64}, 3),
    "three kernels, one warp": ("back(N=517)", {"each": 4, "width": 32}, 3),
    "whole chunks": ("falling(N=256)", {"each": 2, "width": 32}, 3),
    "products": ("products(M=1, N=97)", {"each": 8, "width": 32}, 1),
    "three steps": ("rows(M=1, N=3, T=i32)", {"each": 2, "width": 32}, 1),
    "a second warp with one total": ("rows(M=1, N=80, T=i32)", {"each": 2, "width": 64}, 1),
    "bytes": ("rows(M=1, N=100, T=u8)", {"each": 4, "width": 32}, 1),
}


@cache
def task(text: str) -> Task:
    return loads(f"{TEXT}\ntask t = {text}\n")["t"]


def inputs_of(t: Task) -> dict[str, Array]:
    """Whole numbers of all bits of a type, so that sums wrap around."""
    rng = np.random.default_rng(len(t.program.name))
    (x,) = t.program.inputs
    info = np.iinfo(stored_dtype(x.dtype))
    return {x.name: rng.integers(info.min, info.max, shape_of(x), info.dtype, endpoint=True)}


def expected(text: str, x: Array) -> Array:
    if text.startswith("back"):
        return np.maximum.accumulate(x[::-1])[::-1]
    if text.startswith("falling"):
        return np.minimum.accumulate(x[::-1])
    if text.startswith("products"):
        return np.multiply.accumulate(x, axis=1, dtype=x.dtype)
    return np.cumsum(x, axis=0 if text.startswith("cumsum") else 1, dtype=x.dtype)


@pytest.mark.parametrize("case", CASES)
def test_threads_scan_together_exactly(case: str) -> None:
    text, draws, kernels = CASES[case]
    t = task(text)
    trace = whole(t.drawn_from(condition(t.model, {"together": True, **draws})).sample(0))
    found = lower_device(trace.program)
    assert len(found.kernels) == kernels
    inputs = inputs_of(t)
    fault, outputs = emulated(found, t.program, inputs)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["Y"], expected(text, inputs["X"]))


@pytest.mark.skipif(tool("ptxas") is None, reason="there is no ptxas")
@pytest.mark.parametrize("case", ["warps", "three kernels"])
def test_machine_code_keeps_a_scan_in_registers(case: str) -> None:
    text, draws, _ = CASES[case]
    t = task(text)
    trace = whole(t.drawn_from(condition(t.model, {"together": True, **draws})).sample(0))
    assert registers_of(ptx(lower_device(trace.program), "sm_80"), "sm_80").spilled == ""


@pytest.mark.parametrize("text", ["rows(M=40000, N=64, T=f32)", "cumsum(N=512, M=40000)"])
def test_many_columns_have_a_thread_each(text: str) -> None:
    t = task(text)
    assert not any("split_scan" in t.sample(seed).text for seed in range(4))
