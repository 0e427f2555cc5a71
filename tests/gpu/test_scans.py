"""Scans by the threads of a block and by many blocks: exact in each order of threads, by shuffles, in three kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.memory import aligned_copy, aligned_empty
from tensorc_dsl.backend.protocol import ORDERS
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import ptx, whole
from tests.programs import proof_fault

TEXT = """
use std.cpu.parallel.{unroll_root}
use std.gpu.bind
use std.gpu.limits
use std.gpu.scan.{scan_together}
use std.gpu.targets.{sm_80}
use std.ops.{cumsum}

space scans for cuda {
    scan_together(filters=true)
    auto_bind
    unroll_root
    limits
}

compute rows(X: T[M, N]; T: dtype) -> Y: T[M, N] { Y[i, t] = scan[t] init X[i, 0] step Y[i, t - 1] + X[i, t] }
compute back(X: i32[N]) -> Y: i32[N] { Y[t] = scan[t] init X[N - 1] step max(X[t], Y[t + 1]) }
compute falling(X: i32[N]) -> Y: i32[N] { Y[t] = scan[t] init X[N - 1] step min(X[N - 1 - t], Y[t - 1]) }
compute products(X: i32[M, N]) -> Y: i32[M, N] { Y[i, t] = scan[t] init X[i, 0] step X[i, t] * Y[i, t - 1] }
compute filtered(A: i32[M, N], X: i32[M, N]) -> Y: i32[M, N] {
    Y[i, t] = scan[t] init X[i, 0] step A[i, t] * Y[i, t - 1] + X[i, t]
}
compute tripled(X: i32[N, M]) -> Y: i32[N, M] { Y[t, i] = scan[t] init X[0, i] step 3 * Y[t - 1, i] + X[t, i] }
compute segments(F: i32[M, N], X: T[M, N]; T: dtype) -> Y: T[M, N] {
    Y[i, t] = scan[t] init X[i, 0] step (X[i, t] if F[i, t] > 0 else Y[i, t - 1] + X[i, t])
}
compute begun(A: i32[M, N], X: i32[M, N]) -> Y: i32[M, N] {
    Y[i, t] = scan[t] init X[i, 0] step (A[i, t] * Y[i, t - 1] + X[i, t] if A[i, t] % 8 > 0 else 3)
}
compute clamped(A: i32[N], X: i32[N]) -> Y: i32[N] { Y[t] = scan[t] init X[0] step max(X[t], min(A[t], Y[t - 1])) }
"""

CASES = {
    "one warp": ("rows(M=3, N=61, T=i32)", {"each": 2, "width": 32}, 1),
    "warps": ("rows(M=2, N=509, T=i32)", {"each": 4, "width": 128}, 1),
    "columns": ("cumsum(N=131, M=5, T=i32)", {"each": 2, "width": 128}, 1),
    "three kernels": ("rows(M=2, N=1031, T=i32)", {"each": 2, "width": 64, "passed": False}, 3),
    "three kernels, one warp": ("back(N=517)", {"each": 4, "width": 32, "passed": False}, 3),
    "whole chunks": ("falling(N=256)", {"each": 2, "width": 32, "passed": False}, 3),
    "passed on": ("rows(M=2, N=331, T=i32)", {"each": 2, "width": 64, "passed": True}, 1),
    "passed on, one warp": ("back(N=517)", {"each": 4, "width": 32, "passed": True}, 1),
    "products": ("products(M=1, N=97)", {"each": 8, "width": 32}, 1),
    "three steps": ("rows(M=1, N=3, T=i32)", {"each": 2, "width": 32}, 1),
    "a second warp with one total": ("rows(M=1, N=80, T=i32)", {"each": 2, "width": 64}, 1),
    "a filter, warps": ("filtered(M=2, N=509)", {"each": 4, "width": 128}, 1),
    "a filter, one warp": ("filtered(M=3, N=61)", {"each": 2, "width": 32}, 1),
    "a filter of one factor": ("tripled(N=1021, M=3)", {"each": 8, "width": 128}, 1),
    "a filter of two bounds": ("clamped(N=331)", {"each": 2, "width": 256}, 1),
    "segments, warps": ("segments(M=2, N=509, T=i32)", {"each": 4, "width": 128}, 1),
    "segments, one warp": ("segments(M=3, N=61, T=u8)", {"each": 2, "width": 32}, 1),
    "segments of a filter": ("begun(M=2, N=331)", {"each": 2, "width": 256}, 1),
    "few copied steps": ("rows(M=1, N=101, T=i32)", {"each": 4, "width": 32, "staged": True}, 1),
    "many copied steps": (
        "rows(M=1, N=1013, T=i32)",
        {"each": 4, "width": 32, "passed": False, "staged": True, "staged_1": True},
        3,
    ),
    "bytes": ("rows(M=1, N=100, T=u8)", {"each": 4, "width": 32}, 1),
}


@cache
def task(text: str) -> Task:
    return loads(f"{TEXT}\ntask t = {text} with scans\n")["t"]


def inputs_of(t: Task) -> dict[str, Array]:
    """Whole numbers of all bits of a type, so that sums wrap around."""
    rng = np.random.default_rng(len(t.program.name))
    info = np.iinfo(stored_dtype(t.program.inputs[-1].dtype))
    found = {x.name: rng.integers(info.min, info.max, shape_of(x), info.dtype, endpoint=True) for x in t.program.inputs}
    # Some segments are longer than a chunk of steps, and some begin in each of a few steps.
    return (
        {**found, "F": np.where(rng.random(found["F"].shape) < 0.02, 1, 0).astype(np.int32)} if "F" in found else found
    )


def along(x: Array, step: Callable[[Array, int], Array]) -> Array:
    out = x.copy()
    for t in range(1, len(x)):
        out[t] = step(out[t - 1], t)
    return out


def expected(text: str, x: Array, a: Array | None) -> Array:
    if text.startswith("segments") and a is not None:
        return along(x.T, lambda y, t: np.where(a[:, t] > 0, x[:, t], y + x[:, t])).T
    if text.startswith("begun") and a is not None:
        return along(x.T, lambda y, t: np.where(a[:, t] % 8 > 0, a[:, t] * y + x[:, t], 3)).T
    if text.startswith("filtered") and a is not None:
        return along(x.T, lambda y, t: a[:, t] * y + x[:, t]).T
    if text.startswith("tripled"):
        return along(x, lambda y, t: 3 * y + x[t])
    if text.startswith("clamped") and a is not None:
        return along(x, lambda y, t: np.maximum(x[t], np.minimum(a[t], y)))
    if text.startswith("back"):
        return np.maximum.accumulate(x[::-1])[::-1]
    if text.startswith("falling"):
        return np.minimum.accumulate(x[::-1])
    if text.startswith("products"):
        return np.multiply.accumulate(x, axis=1, dtype=x.dtype)
    return np.cumsum(x, axis=0 if text.startswith("cumsum") else 1, dtype=x.dtype)


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_threads_scan_together_exactly(case: str) -> None:
    text, draws, kernels = CASES[case]
    t = task(text)
    trace = whole(t.drawn_from(condition(t.model, {"together": True, **draws})).sample(0))
    if "filter" not in case and "segments" not in case:
        assert proof_fault(t.program, trace.program) == ""
    found = lower_device(trace.program)
    assert len(found.kernels) == kernels
    inputs = inputs_of(t)
    fault, outputs = emulated(found, t.program, inputs)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["Y"], expected(text, inputs["X"], inputs.get("A", inputs.get("F"))))


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("rows(M=2, N=1..100000, T=i32)", 3),
        ("cumsum(N=1..100000, M=3, T=i32)", 1),
        ("back(N=1..100000)", 3),
        ("filtered(M=2, N=1..100000)", 1),
        ("tripled(N=1..100000, M=2)", 2),
        ("segments(M=2, N=1..100000, T=i32)", 1),
    ],
)
def test_scans_of_an_open_number_of_steps(text: str, kernels: int) -> None:
    t = task(text)
    draws = {"together": True, "each": 4, "width": 64, "staged": not text.startswith("cumsum"), "passed": kernels < 3}
    found = lower_device(whole(t.drawn_from(condition(t.model, draws)).sample(0)).program)
    assert len(found.kernels) == kernels
    run = emulation(found)
    rng = np.random.default_rng(len(text))
    for n in (1, 255, 256, 257, 1031):
        shape = [constant(d) or n for d in t.program.inputs[0].shape]
        x = rng.integers(-(2**31), 2**31, shape, np.int32)
        for order in ORDERS:
            arrays = {"X": aligned_copy(x), "Y": aligned_empty(x.shape, np.dtype(np.int32))}
            arrays |= {"A": aligned_copy(x[..., ::-1])} if text.startswith("filtered") else {}
            arrays |= {"F": aligned_copy(x[..., ::-1] % 90 // 88)} if text.startswith("segments") else {}
            assert run.run(arrays, {"N": n}, order) == ""
            np.testing.assert_array_equal(arrays["Y"], expected(text, x, arrays.get("A", arrays.get("F"))))


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "draws"), [(CASES["warps"][0], CASES["warps"][1]), ("rows(M=2, N=2039, T=f32)", {"each": 8, "width": 64})]
)
def test_threads_ask_for_few_sectors(text: str, draws: dict[str, int]) -> None:
    t = task(text)
    moves = dict[bool, int]()
    for staged in (False, True):
        trace = whole(t.drawn_from(condition(t.model, {"together": True, "staged": staged, **draws})).sample(0))
        kernel = t.emulate(trace).counts[-1]
        of_x = [x for x in kernel.traffic if x.buffer == "X"]
        moves[staged] = sum(x.moves for x in of_x)
        if staged:
            assert moves[True] <= 1.3 * sum(x.least for x in of_x)
            shared = [x for x in kernel.traffic if x.shared]
            assert sum(x.moves for x in shared) <= 1.5 * sum(x.least for x in shared)
    assert moves[False] >= 3 * moves[True]


@pytest.mark.corpus
@pytest.mark.skipif(tool("ptxas") is None, reason="there is no ptxas")
@pytest.mark.parametrize("case", ["warps", "three kernels", "a filter, warps"])
def test_machine_code_keeps_a_scan_in_registers(case: str) -> None:
    text, draws, _ = CASES[case]
    t = task(text)
    trace = whole(t.drawn_from(condition(t.model, {"together": True, **draws})).sample(0))
    assert registers_of(ptx(lower_device(trace.program), "sm_80"), "sm_80").spilled == ""


@pytest.mark.parametrize("text", ["rows(M=40000, N=64, T=f32)", "cumsum(N=512, M=40000)"])
def test_many_columns_have_a_thread_each(text: str) -> None:
    t = task(text)
    assert not any("split_scan" in t.sample(seed).text for seed in range(4))


@pytest.mark.corpus
@pytest.mark.parametrize("steps", [128, 256, 512, 1024])
@pytest.mark.parametrize("factor", ["0.5", "A[t, i]"])
def test_the_default_space_proves_its_filters(steps: int, factor: str) -> None:
    """Threads that scan a filter together were drawn; the proof took up to 51 s, and mostly failed."""
    t = loads(f"""use std.gpu.default
use std.gpu.targets.{{sm_80}}
compute filtered(A: f32[T, N], X: f32[T, N]) -> Y: f32[T, N] {{
    Y[t, i] = scan[t] init X[0, i] step {factor} * Y[t - 1, i] + X[t, i]
}}
task t = filtered(T={steps}, N=64) with default
""")["t"]
    traces = {x.text: x for x in map(t.sample, range(6))}
    assert not any("split_scan" in text for text in traces)
    assert all(proof_fault(t.program, x.program) == "" for x in traces.values())
