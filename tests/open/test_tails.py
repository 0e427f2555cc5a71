"""Products of open rows, and the last tiles of open columns and lanes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest

from tensorc_dsl import Task, loads
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tests.codegen.native import compiled

TEXT = """
use std.cpu.{default}
compute dense(A: f32[M, K], W: const f32[N, K], b: const f32[N]) -> C: f32[M, N] {
    let S[i, j] = sum[k] A[i, k] * W[j, k]
    C[i, j] = max(S[i, j] + b[j], 0)
}
compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
compute batch(A: f32[H, M, K], B: f32[H, K, N]) -> C: f32[H, M, N] {
    C[h, i, j] = sum[k] A[h, i, k] * B[h, k, j]
}
task dense = dense(M=1..40 at [1, 16, 40], N=96, K=40) with default
task product = product(M=0..40 at [1, 16, 40], N=70, K=33) with default
task batch = batch(H=3, M=1..40 at [1, 16, 40], N=48, K=16) with default
task columns = product(M=40, N=1..70, K=33) with default
task few = product(M=40, N=1..5, K=33) with default
"""

SHAPES = {
    "dense": ((40, 40), (96, 40), (96,)),
    "product": ((40, 33), (33, 70)),
    "batch": ((3, 40, 16), (3, 16, 48)),
}

RESULTS: dict[str, Callable[..., Array]] = {
    "dense": lambda a, w, b: np.maximum(a @ w.T + b, 0),
    "product": np.matmul,
    "batch": np.matmul,
}


def drawn(task: Task, count: int) -> Iterator[Trace]:
    """That many of the schedules in the five loops."""
    seed = 0
    while count:
        seed += 1
        with suppress(ScheduleRefusal):
            trace = task.sample(seed)
            if trace.decisions.get("five_loops"):
                count -= 1
                yield trace


@pytest.mark.corpus
@pytest.mark.parametrize("name", RESULTS)
def test_kernels_are_right_at_each_size(name: str) -> None:
    task = loads(TEXT, threads=2)[name]
    rng = np.random.default_rng(0)
    first, *others = (rng.integers(-4, 5, shape).astype(np.float32) for shape in SHAPES[name])
    heights: set[object] = set()
    for trace in drawn(task, 4):
        assert task.verify(trace) == Valid()
        heights.add((trace.decisions["columns"], trace.decisions["height"]))
        kernel = task.replay(trace)
        for m in range(0 if name == "product" else 1, 41):
            rows = first[..., :m, :].copy()
            assert np.array_equal(kernel(rows, *others), RESULTS[name](rows, *others))
    assert len(heights) > 1


def test_tiles_of_open_columns_are_vectors_wide() -> None:
    haswell = 'target avx2 = llvm(cpu="haswell", features=["avx", "avx2", "fma"], vector_bits=256, cores=1)\n'
    file = loads(haswell + TEXT, target="avx2")
    widths: dict[str, set[int]] = {"columns": set(), "few": set()}
    for name, found in widths.items():
        for seed in range(16):
            with suppress(ScheduleRefusal):
                tile = file[name].sample(seed).decisions.get("inner")
                found |= {tile[-1]} if isinstance(tile, tuple) and isinstance(tile[-1], int) else set()
    assert min(widths["columns"]) >= 8 and len(widths["columns"]) > 2
    assert widths["few"] and max(widths["few"]) <= 8


TILED = """
compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule tiled for product {
    let sums = cache_write(C, "local")
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 2])
    let [j0, j1] = split(j, [_, 16], partial=true)
    reorder(i0, j0, k, i1, j1)
    reverse_compute_at(sums, j0)
    let zero = decompose_reduction(C, k)
    for b in [C, zero, sums] {
        unroll(b.loops[-2])
        vectorize(b.loops[-1])
    }
}
task product = product(M=4, N=1..64, K=9) with tiled
"""


def test_sums_of_the_last_columns_stay_in_registers() -> None:
    task = loads(TILED)["product"]
    trace = task.sample(0)
    made = compiled(trace.program)
    vectors = 16 // min(16, made.target.vector_bits // 32)
    # Of each row of the last tile: what is loaded of B, and what is stored. Masked accesses of the sums would be more.
    assert len(re.findall(r"call .*@llvm\.masked\.store", made.llvm_ir)) == 2 * vectors
    kernel = task.replay(trace)
    for n in (1, 15, 16, 17, 33, 63, 64):
        a, b = (np.random.default_rng(n).standard_normal(shape).astype(np.float32) for shape in ((4, 9), (9, n)))
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-5)


ROWS = """
use std.ops.{softmax}
schedule lanes for softmax {
    let [i, j] = m.loops
    let [j0, j1] = split(j, [_, 16], partial=true)
    let part = rfactor(m, j1, axis=-1)
    compute_at(part, m.loops[0])
    reorder(j0, j1)
    vectorize(j1)
}
task softmax = softmax(M=3, N=1..80) with lanes
"""


def test_lanes_of_open_rows_are_masked_in_the_last_step_alone() -> None:
    task = loads(ROWS)["softmax"]
    trace = task.sample(0)
    code = task.lowered_text(trace)
    (whole, *others) = re.findall(r"for j_0 in 0 \.\. (.*) \{", code)
    assert (whole, others) == ("N / 16", [])
    assert "if -inf" not in code and "else -inf" not in code
    kernel = task.replay(trace)
    for n in (1, 15, 16, 17, 79, 80):
        x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
        x[1, n // 2] = np.nan
        e = np.exp(x - x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(kernel(x), e / e.sum(axis=1, keepdims=True), rtol=1e-4)
