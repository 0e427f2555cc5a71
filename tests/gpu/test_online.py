"""Rows of exponentials that shared memory cannot hold are one kernel, right in each order of threads, and proved."""

from __future__ import annotations

from functools import lru_cache

import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.emulation import Emulated
from tests.examples import FIRST
from tests.gpu.kernels import DRAWS, kernels_of, ptx, whole
from tests.programs import proof_fault

RULES = """
use std.cpu.inline.{auto_inline}
use std.gpu.bind
use std.gpu.default.{default}
use std.gpu.limits
use std.gpu.online.{online_together}
use std.gpu.reduction
use std.gpu.targets.{sm_80}
use std.gpu.tensor_core.{tensor_core}
use std.gpu.tensor_online.{tensor_online}
use std.gpu.tiling
use std.intrinsics.cuda
use std.ops.attention

const few = 1000000

space rows for cuda {
    auto_inline
    online_together(terms=[1, 2, 16, 32], held=few, chance=100)
    auto_bind
    bind_single
    limits
}

space finite_rows for cuda {
    auto_inline
    tensor_online(held=few, finite=true, chance=100)
    auto_bind
    bind_single
    limits
}

space tensor_rows for cuda {
    auto_inline
    tensor_online(held=few, chance=100)
    tensor_online(
        mma=mma_m16n16k16_bf16,
        loads_a=[ldmatrix_a_bf16, ldmatrix_a_columns_bf16],
        loads_b=[ldmatrix_b_x4_bf16, ldmatrix_b_columns_x4_bf16],
        held=few,
        chance=100,
    )
    auto_bind
    bind_single
    limits
}

compute half(Q: T[B, H, M, D], K: T[B, H, N, D], V: T[B, H, N, E]; T: dtype = f16) -> O: f32[B, H, M, E] {
    let S[b, h, i, j] = sum[d] f32(Q[b, h, i, d]) * f32(K[b, h, j, d])
    let m[b, h, i] = max[j] S[b, h, i, j]
    let e[b, h, i, j] = T(exp((S[b, h, i, j] - m[b, h, i]) * rsqrt(f32(D))))
    let s[b, h, i] = sum[j] f32(e[b, h, i, j])
    let U[b, h, i, c] = sum[j] f32(e[b, h, i, j]) * f32(V[b, h, j, c])
    O[b, h, i, c] = U[b, h, i, c] / s[b, h, i]
}

compute causal(Q: T[M, D], K: T[N, D], V: T[N, E]; T: dtype = f16, after: int = 0) -> O: f32[M, E] {
    let S[i, j] = sum[d] f32(Q[i, d]) * f32(K[j, d])
    let W[i, j] = S[i, j] if j <= i - after else -inf
    let m[i] = max[j] W[i, j]
    let e[i, j] = T(exp((W[i, j] - m[i]) * rsqrt(f32(D))))
    let s[i] = sum[j] f32(e[i, j])
    let U[i, c] = sum[j] f32(e[i, j]) * f32(V[j, c])
    O[i, c] = U[i, c] / s[i]
}

compute masked(Q: f32[M, D], K: f32[N, D], V: f32[N, E]) -> O: f32[M, E] {
    let S[i, j] = sum[d] Q[i, d] * K[j, d]
    let W[i, j] = S[i, j] if j <= i else -inf
    let m[i] = max[j] W[i, j]
    let e[i, j] = exp((W[i, j] - m[i]) * rsqrt(f32(D)))
    let s[i] = sum[j] (e[i, j] if j <= i else 0.0)
    let U[i, c] = sum[j] (e[i, j] * V[j, c] if j <= i else 0.0)
    O[i, c] = U[i, c] / s[i]
}
"""

CASES = {
    "primes": "attention(B=1, H=2, M=7, N=37, D=5, E=11) with rows",
    "a query alone": "attention(B=2, H=1, M=1, N=19, D=1, E=3) with rows",
    "two keys": "attention(B=1, H=2, M=3, N=2, D=4, E=1) with rows",
    "a mask": "causal(M=24, N=24, D=4, E=4, T=f32) with rows",
    "tensor cores": "half(B=1, H=2, M=32, N=64, D=32, E=16) with tensor_rows",
    "tensor cores, bf16": "half(B=2, H=1, M=16, N=32, D=16, E=16, T=bf16) with tensor_rows",
    "tensor cores, primes": "half(B=1, H=2, M=17, N=96, D=19, E=11) with tensor_rows",
    "tensor cores, a prime number of keys": "half(B=1, H=2, M=17, N=53, D=19, E=11) with tensor_rows",
    "tensor cores, a query alone": "half(B=1, H=1, M=1, N=48, D=16, E=5) with tensor_rows",
    "tensor cores, a mask": "causal(M=64, N=64, D=16, E=16) with tensor_rows",
}


@lru_cache(maxsize=8)
def task(text: str) -> Task:
    """The task of a compute and a space of `RULES`, which several tests look at."""
    return td.loads(f"{RULES}\ntask t = {text}\n")["t"]


def online(t: Task, seed: int, **decisions: Decision) -> Trace:
    return _drawn(t, seed, tuple(decisions.items()))


@lru_cache(maxsize=8)
def _drawn(t: Task, seed: int, decisions: tuple[tuple[str, Decision], ...]) -> Trace:
    trace = whole(t.drawn_from(condition(t.model, {"inline": False, **dict(decisions)})).sample(seed))
    assert "online_sums(" in trace.text
    return trace


def check_kernel(t: Task, trace: Trace, products: int) -> Emulated:
    kernels = kernels_of(t, trace)
    assert len(kernels.kernels) == 1 and not kernels.scratch
    code = ptx(kernels, "sm_80")
    assert code.count("mma.sync") >= products and ".local" not in code
    if tool("ptxas") is not None:
        assert registers_of(code, "sm_80").spilled == ""
    found = t.emulate(trace)
    assert (found.fault, found.max_error <= 1) == ("", True), trace.text
    return found


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("case", CASES)
def test_rows_are_one_kernel(case: str) -> None:
    t = task(CASES[case])
    for seed in range(FIRST, FIRST + DRAWS):
        trace = online(t, seed, **({"scores": "shared"} if "tensor" in case else {}))
        check_kernel(t, trace, 4 if "tensor" in case else 0)
        assert proof_fault(t.program, trace.program) == ""


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize(
    ("text", "products"),
    [
        ("attention(B=1, H=1, M=2, N=4096, D=64, E=64) with default", 0),
        ("half(B=1, H=1, M=16, N=4096, D=64, E=64) with tensor_core", 4),
    ],
)
def test_long_rows_are_one_kernel_by_default(text: str, products: int) -> None:
    t = task(text)
    name = "tensor_online" if products else "online"
    trace = online(t, 0, **{name: True})
    check_kernel(t, trace, products)
    assert proof_fault(t.program, trace.program) == ""


@pytest.mark.corpus
def test_short_rows_are_left_to_whole_ones() -> None:
    t = task("attention(B=1, H=1, M=8, N=512, D=16, E=16) with default")
    assert not any(d.name == "online" for d in whole(t.sample(0)).draws)


@pytest.mark.corpus("wrong rows of attention")
def test_rows_that_are_masked_as_a_whole_are_as_in_the_compute() -> None:
    t = task("causal(M=24, N=40, D=4, E=4, T=f32, after=3) with rows")
    check_kernel(t, online(t, 0), 0)
