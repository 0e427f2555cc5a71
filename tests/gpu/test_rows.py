"""Reductions along rows, what reads them and reductions of that are one kernel, right in each order of threads."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tests.gpu.kernels import DRAWS, kernels_of, ptx, whole
from tests.gpu.test_barriers import check_each_is_needed
from tests.programs import random_inputs

COMPUTES = """
compute centered(X: f32[B, M, N]) -> Y: f32[B, M, N] {
    let total[b] = sum[i, j] X[b, i, j]
    Y[b, i, j] = X[b, i, j] - total[b] / f32(M * N)
}

compute log_softmax(X: f32[B, M, N]) -> Y: f32[B, M, N] {
    let m[b, i] = max[j] X[b, i, j]
    let s[b, i] = sum[j] exp(X[b, i, j] - m[b, i])
    let l[b, i] = log(s[b, i])
    Y[b, i, j] = X[b, i, j] - m[b, i] - l[b, i]
}

compute spread(X: f32[M, N]) -> V: f32[M] {
    let total[i] = sum[j] X[i, j]
    V[i] = sum[j] (X[i, j] - total[i] / f32(N)) * (X[i, j] - total[i] / f32(N))
}

compute turned(X: f32[M, N]) -> Y: f32[M, N] {
    let m[i] = max[j] X[i, j]
    let e[i, j] = exp(X[i, j] - m[i])
    Y[i, j] = e[i, N - 1 - j] / m[i]
}

compute taken_up(X: f32[M, 3, N]) -> Y: f32[M, 1] {
    let s[i, r] = sum[j] X[i, r, j]
    Y[i, q] = max[r in 3] s[i, q + r]
}

compute of_columns(X: f32[M, N]) -> Y: f32[M, N] {
    let m[j] = max[i] X[i, j]
    Y[i, j] = X[i, j] / m[j]
}

compute twice(A: f32[M, K], B: f32[K, N], C: f32[N, L]) -> Y: f32[M, L] {
    let P[i, j] = sum[k] A[i, k] * B[k, j]
    let Q[i, l] = sum[j] P[i, j] * C[j, l]
    Y[i, l] = max(Q[i, l], 0.0)
}

compute weighted(A: f32[M, K], B: f32[K, N], C: f32[N, L], w: f32[N]) -> Y: f32[M, L] {
    let P[i, j] = sum[k] A[i, k] * B[k, j]
    let v[i] = sum[j] P[i, j] * w[j]
    let Q[i, l] = sum[j] P[i, j] * C[j, l]
    Y[i, l] = Q[i, l] * v[i]
}
"""

ROWS = {
    "softmax": "softmax(M=5, N=67)",
    "stored exponentials": "softmax(M=5, N=67)",
    "open rows": "softmax(M=1..9, N=33)",
    "open rows, stored exponentials": "softmax(M=1..9, N=33)",
    "open length": "layer_norm(M=3, N=1..40)",
    "layer norm": "layer_norm(M=5, N=67)",
    "rms norm": "rms_norm(M=2, N=40)",
    "norm": "norm_bmn(B=3, M=5, N=7)",
    "two dimensions": "centered(B=3, M=5, N=7)",
    "two loops of rows": "log_softmax(B=2, M=3, N=37)",
    "a reduction at the end": "spread(M=4, N=45)",
    "other elements of a row": "turned(M=4, N=45)",
    "several results in a row": "taken_up(M=4, N=45)",
}

DECISIONS: dict[str, dict[str, Decision]] = {
    "stored exponentials": {"inline": False},
    "open rows, stored exponentials": {"inline": False},
    "layer norm": {"combine": "by_shuffles", "combine_1": "by_shuffles"},
    "other elements of a row": {"inline": False},
    "more rows than warps": {"piece": 8, "width": 64, "combine": "by_shuffles"},
}


def row_task(folder: Path, text: str) -> Task:
    file = folder / "t.tsched"
    uses = "use std.ops\nuse std.gpu.default.{default}\nuse std.gpu.targets.{sm_80}\n"
    file.write_text(f"{uses}{COMPUTES}\ntask t = {text} with default\n")
    return td.load(file)["t"]


def check(t: Task, trace: Trace) -> None:
    """One kernel, which keeps nothing of its threads in memory, and is right in each order of threads."""
    kernels = kernels_of(t, trace)
    assert len(kernels.kernels) == 1 and not kernels.scratch
    code = ptx(kernels, "sm_80")
    assert ".local" not in code
    if tool("ptxas") is not None:
        assert registers_of(code, "sm_80").spilled == ""
    found = t.emulate(trace)
    assert (found.fault, found.max_error <= 1) == ("", True), trace.text


@pytest.mark.corpus
@pytest.mark.parametrize("case", ROWS)
def test_a_row_is_one_kernel(case: str, tmp_path: Path) -> None:
    t = row_task(tmp_path, ROWS[case])
    draws = t.drawn_from(condition(t.model, {"one_kernel": True, **DECISIONS.get(case, {})}))
    for seed in range(DRAWS):
        trace = whole(draws.sample(seed))
        check(t, trace)


@pytest.mark.corpus
def test_apart_it_is_several(tmp_path: Path) -> None:
    t = row_task(tmp_path, ROWS["softmax"])
    trace = t.drawn_from(condition(t.model, {"one_kernel": False})).sample(0)
    assert len(lower_device(trace.program).kernels) >= 3


@pytest.mark.corpus
def test_each_barrier_between_the_stages_of_a_row_is_needed(tmp_path: Path) -> None:
    t = row_task(tmp_path, "turned(M=2, N=45)")
    decisions: dict[str, Decision] = {"one_kernel": True, "inline": False, "width": 64, "combine": "by_shuffles"}
    kernels = lower_device(whole(t.drawn_from(condition(t.model, decisions)).sample(0)).program)
    assert check_each_is_needed(kernels, t.program, random_inputs(t.program)) >= 3


@pytest.mark.corpus
def test_what_is_no_row_is_not_computed_again(tmp_path: Path) -> None:
    """The greatest of each column would be computed for each row."""
    t = row_task(tmp_path, "of_columns(M=5, N=7)")
    assert not any(d.name == "one_kernel" for seed in range(3) for d in whole(t.sample(seed)).draws)


CHAINS = {
    "attention": "attention(B=1, H=2, M=6, N=37, D=8, E=12)",
    "a row alone": "attention(B=2, H=1, M=1, N=7, D=1, E=5)",
    "more rows than warps": "attention(B=1, H=2, M=8, N=13, D=8, E=12)",
    "two products": "twice(M=10, N=7, K=3, L=9)",
    "one product of a row with a vector": "weighted(M=10, N=7, K=3, L=9)",
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", CHAINS)
def test_a_chain_of_products_is_one_kernel(case: str, tmp_path: Path) -> None:
    t = row_task(tmp_path, CHAINS[case])
    draws = t.drawn_from(condition(t.model, {"chain": True, **DECISIONS.get(case, {})}))
    for seed in range(DRAWS):
        trace = whole(draws.sample(seed))
        check(t, trace)


@pytest.mark.corpus
def test_a_chain_whose_rows_do_not_fit_is_several_kernels(tmp_path: Path) -> None:
    t = row_task(tmp_path, "attention(B=1, H=1, M=8, N=65536, D=8, E=8)")
    assert not any(d.name == "chain" for d in whole(t.sample(0)).draws)
