"""Chains of products on tensor cores are one kernel, right in each order of threads, with padding where sizes are odd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.expr import Expr, Var, substitute
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tests.gpu.kernels import DRAWS, kernels_of, ptx, whole
from tests.gpu.tensor_cores import hand, whole_numbers
from tests.gpu.test_barriers import check_each_is_needed
from tests.programs import proof_fault

COMPUTES = """
compute half_attention(Q: T[B, H, M, D], K: T[B, H, N, D], V: T[B, H, N, E]; T: dtype = f16) -> O: f32[B, H, M, E] {
    let S[b, h, i, j] = sum[d] f32(Q[b, h, i, d]) * f32(K[b, h, j, d])
    let m[b, h, i] = max[j] S[b, h, i, j]
    let e[b, h, i, j] = T(exp((S[b, h, i, j] - m[b, h, i]) * rsqrt(f32(D))))
    let s[b, h, i] = sum[j] f32(e[b, h, i, j])
    let U[b, h, i, c] = sum[j] f32(e[b, h, i, j]) * f32(V[b, h, j, c])
    O[b, h, i, c] = U[b, h, i, c] / s[b, h, i]
}

compute half_twice(A: f16[M, K], B: f16[K, N], C: f16[N, L]) -> Y: f32[M, L] {
    let P[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j])
    let H[i, j] = f16(P[i, j])
    Y[i, l] = sum[j] f32(H[i, j]) * f32(C[j, l])
}

compute half_totals(A: f16[M, K], B: f16[K, N], C: f16[N, L]) -> Y: f32[L] {
    let P[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j])
    let H[i, j] = f16(P[i, j])
    let Q[i, l] = sum[j] f32(H[i, j]) * f32(C[j, l])
    Y[l] = sum[i] Q[i, l]
}

compute heads_inside(Q: f16[M, H, D], K: f16[N, H, D], V: f16[N, H, E]) -> O: f32[M, H, E] {
    let S[i, h, j] = sum[d] f32(Q[i, h, d]) * f32(K[j, h, d])
    let e[i, h, j] = f16(S[i, h, j])
    O[i, h, c] = sum[j] f32(e[i, h, j]) * f32(V[j, h, c])
}
"""

CASES = {
    "whole instructions": "half_attention(B=1, H=2, M=32, N=64, D=32, E=32)",
    "bf16": "half_attention(B=2, H=1, M=32, N=32, D=16, E=16, T=bf16)",
    "primes": "half_attention(B=1, H=2, M=17, N=37, D=19, E=11)",
    "a row alone": "half_attention(B=2, H=1, M=1, N=7, D=1, E=5)",
    "a key alone": "half_attention(B=1, H=2, M=16, N=1, D=3, E=16)",
    "more warps than rows": "half_attention(B=1, H=2, M=7, N=41, D=8, E=5)",
    "the last piece in part": "half_attention(B=1, H=1, M=50, N=130, D=16, E=48)",
}


def chain_task(folder: Path, text: str) -> Task:
    file = folder / "t.tsched"
    uses = "use std.gpu.tensor_core.{tensor_core}\nuse std.gpu.targets.{sm_80}\n"
    file.write_text(f"{uses}{COMPUTES}\ntask t = {text} with tensor_core\n")
    return td.load(file)["t"]


def chained(t: Task, seed: int, **decisions: Decision) -> Trace:
    return whole(t.drawn_from(condition(t.model, {"tensor_chain": True, **decisions})).sample(seed))


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("case", CASES)
def test_attention_is_one_kernel_on_tensor_cores(case: str, tmp_path: Path) -> None:
    t = chain_task(tmp_path, CASES[case])
    for seed in range(DRAWS):
        trace = chained(t, seed, inline=False)
        kernels = kernels_of(t, trace)
        assert len(kernels.kernels) == 1 and not kernels.scratch
        code = ptx(kernels, "sm_80")
        assert code.count("mma.sync") >= 4 and ".local" not in code  # two instructions or more for each product
        if tool("ptxas") is not None:
            assert registers_of(code, "sm_80").spilled == ""
        found = t.emulate(trace)
        assert (found.fault, found.max_error <= 1) == ("", True), trace.text


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("size", ["M=32, N=48, K=16, L=16", "M=19, N=37, K=5, L=23"])
def test_small_integers_are_exact(size: str, tmp_path: Path) -> None:
    t = chain_task(tmp_path, f"half_twice({size})")
    inputs, (a, b, c) = whole_numbers(t.program)
    for seed in range(2 * DRAWS):
        trace = chained(t, seed, inline=False)
        fault, outputs = emulated(lower_device(trace.program), trace.program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["Y"], (a @ b) @ c)


@pytest.mark.parametrize("name", ["mma_m16n16k16_f16", "mma_m16n16k16_bf16"])
def test_sums_have_the_layout_of_a_left_operand(name: str) -> None:
    """What a lane has of the sums is what it has of the left operand of the next product."""
    mma = next(i for i in hand().intrinsics if i.name == name)
    places = {x.name: x for x in mma.layouts}
    left, sums = places["mma.a"], places["mma.c"]
    renamed: dict[str, Expr] = dict(zip(left.params, map(Var, sums.params), strict=True))
    assert [(k, substitute(e, renamed)) for k, e in left.places] == list(sums.places)


@pytest.mark.corpus
def test_columns_that_are_summed_behind_the_chain_are_stored(tmp_path: Path) -> None:
    t = chain_task(tmp_path, "half_totals(M=32, N=16, K=16, L=16)")
    inputs, (a, b, c) = whole_numbers(t.program)
    trace = chained(t, 0, inline=False, in_parts=False)
    fault, outputs = emulated(lower_device(trace.program), trace.program, inputs)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["Y"], ((a @ b) @ c).sum(axis=0))


def test_rows_that_both_operands_have_are_no_rows_of_an_instruction(tmp_path: Path) -> None:
    """The last loops of elements count heads and columns, and the values have heads, too."""
    t = chain_task(tmp_path, "heads_inside(M=16, H=16, N=16, D=16, E=16)")
    assert not any(d.name == "tensor_chain" for d in whole(t.sample(0)).draws)


@pytest.mark.corpus
@pytest.mark.parametrize("sizes", ["M=16, N=5, D=0, E=16", "M=16, N=0, D=4, E=16"])
def test_sums_of_nothing_are_left_to_other_rules(sizes: str, tmp_path: Path) -> None:
    t = chain_task(tmp_path, f"half_attention(B=1, H=1, {sizes})")
    trace = whole(t.sample(0))
    found = t.emulate(trace)
    assert (found.fault, found.max_error <= 1) == ("", True), trace.text


@pytest.mark.corpus
def test_the_chain_is_proved(tmp_path: Path) -> None:
    t = chain_task(tmp_path, "half_attention(B=1, H=2, M=16, N=32, D=16, E=16)")
    assert proof_fault(t.program, chained(t, 0, inline=False).program) == ""


@pytest.mark.corpus("faults of rows")
def test_each_barrier_of_a_chain_is_needed(tmp_path: Path) -> None:
    t = chain_task(tmp_path, "half_twice(M=16, N=32, K=16, L=16)")
    inputs, _ = whole_numbers(t.program)
    kernels = lower_device(chained(t, 0, inline=False, width=64).program)
    assert check_each_is_needed(kernels, t.program, inputs) >= 3


@pytest.mark.corpus
def test_rows_that_do_not_fit_are_left_to_other_rules(tmp_path: Path) -> None:
    t = chain_task(tmp_path, "half_attention(B=1, H=1, M=16, N=65536, D=16, E=16)")
    assert not any(d.name == "tensor_chain" for d in whole(t.sample(0)).draws)
