"""Transposes go through registers, as squares whose rows and columns are vectors: no access is narrow, and no sector is half
used."""

from __future__ import annotations

import re

import pytest

import tensorc_dsl as td
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import kernels_of, ptx, whole
from tests.programs import proof_fault

HEAD = """
use std.gpu.default.{default}
use std.gpu.targets.{sm_80}
use std.ops.{transpose}

compute heads(X: T[B, L, H, D]; T: dtype = f32) -> Y: T[B, H, D, L] {
    Y[b, h, d, l] = X[b, l, h, d]
}

compute both(X: f32[M, N], Z: f32[N, M], s: f32[N]) -> Y: f32[N, M] {
    Y[j, i] = max(X[i, j], 0.0) * s[j] + Z[j, i]
}

compute part(X: f32[M, 40]) -> Y: f32[8, M] {
    Y[j, i] = X[i, j + 3]
}
"""

DRAWS: dict[str, Decision] = {"transposed": True, "width": 64, "lanes": 8}
CASES = {
    "f32": "transpose(M=64, N=96)",
    "ragged tiles": "transpose(M=44, N=52)",
    "f16": "transpose(M=64, N=72, T=f16)",
    "f64": "transpose(M=30, N=26, T=f64)",
    "bytes": "transpose(M=64, N=48, T=i8)",
    "heads": "heads(B=2, L=12, H=3, D=20)",
    "beside straight reads": "both(M=36, N=28)",
}


def task(text: str) -> Task:
    return td.loads(f"{HEAD}\ntask t = {text} with default\n")["t"]


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_all_accesses_are_vectors(case: str) -> None:
    t = task(CASES[case])
    for seed, lanes in enumerate((8, 4, 16)):
        trace = whole(t.drawn_from(condition(t.model, {**DRAWS, "lanes": lanes})).sample(seed))
        code = ptx(kernels_of(t, trace), "sm_80")
        found = t.emulate(trace)
        assert (found.fault, found.max_error <= 1) == ("", True), trace.text
        assert proof_fault(t.program, trace.program) == ""
        assert ".local" not in code
        if case != "beside straight reads":
            assert set(re.findall(r"[ls][td]\.global(?:\.nc)?(\S*)", code)) <= {".v4.b32", ".v2.b64"}


@pytest.mark.corpus
def test_sectors_are_full() -> None:
    t = task("transpose(M=128, N=128)")
    trace = whole(t.drawn_from(condition(t.model, DRAWS)).sample(0))
    (counts,) = t.emulate(trace).counts
    assert (counts.moves(shared=False), counts.moves(shared=True)) == (2 * 128 * 128 * 4 // 32, 0)


@pytest.mark.corpus
@pytest.mark.parametrize("text", ["transpose(M=33, N=64)", "transpose(M=64, N=33)", "part(M=64)"])
def test_rows_that_are_no_vectors_are_bound_as_other_maps(text: str) -> None:
    t = task(text)
    trace = whole(t.sample(0))
    assert "transposed" not in trace.text
    found = t.emulate(trace)
    assert (found.fault, found.max_error <= 1) == ("", True)
