"""Results of 16 bits go from registers to shared memory four matrices at once, `stmatrix`, before TMA stores them."""

from __future__ import annotations

import pytest

import tensorc_dsl as td
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import kernels_of, ptx, whole
from tests.programs import proof_fault

HEAD = """
use std.gpu.hopper.{hopper}
use std.gpu.targets.{sm_90a}

compute dense(A: T[M, K], B: T[K, N], c: f32[N]; T: dtype = f16) -> C: T[M, N] {
    let S[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j])
    C[i, j] = T(max(S[i, j] + c[j], 0.0))
}

compute wide(A: T[M, K], B: T[K, N]; T: dtype = f16) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j])
}
"""

DRAWS: dict[str, Decision] = {"in_parts": False, "streamed": False, "warpgroups": True, "stored": "tma"}


def task(text: str) -> Task:
    return td.loads(f"{HEAD}\ntask t = {text} with hopper\n", target="sm_90a")["t"]


@pytest.mark.corpus
@pytest.mark.parametrize("t", ["f16", "bf16"])
@pytest.mark.parametrize("seed", range(3))
def test_warps_store_matrices_without_bank_conflicts(t: str, seed: int) -> None:
    own = task(f"dense(M=128, N=128, K=64, T={t})")
    trace = whole(own.drawn_from(condition(own.model, DRAWS)).sample(seed))
    code = ptx(kernels_of(own, trace), "sm_90a")
    first, store = code.index("stmatrix"), code.index("cp.async.bulk.tensor.2d.global")
    assert first < code.index("fence.proxy.async", first) < store
    found = own.emulate(trace)
    assert (found.fault, found.max_error <= 1) == ("", True), trace.text
    (into,) = (x for k in found.counts for x in k.traffic if x.into == "C_shared" and x.write)
    assert into.moves == into.least == 128 * 128 * 2 // 128
    assert proof_fault(own.program, trace.program) == ""


@pytest.mark.corpus
def test_results_of_32_bits_are_stored_by_lanes() -> None:
    own = task("wide(M=128, N=128, K=64)")
    trace = whole(own.drawn_from(condition(own.model, DRAWS)).sample(0))
    code = ptx(kernels_of(own, trace), "sm_90a")
    assert "cp.async.bulk.tensor.2d.global" in code
    assert "stmatrix" not in code
