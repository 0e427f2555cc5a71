"""Attention by warpgroups: scores stay in registers, and exponentials are the left factor of the second product there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.compiled import assemble, remarks, tool
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tests.examples import FIRST
from tests.gpu.kernels import DRAWS, kernels_of, ptx, whole
from tests.gpu.test_barriers import check_each_is_needed
from tests.gpu.test_online import RULES
from tests.programs import proof_fault

LOADED: dict[str, Decision] = {"copied": "tma", "copied_1": "tma", "copied_2": "tma", "ahead": 1}

BY_THREADS: dict[str, Decision] = {"copied": "threads", "copied_1": "threads", "copied_2": "threads", "ahead": 0}

CASES: Mapping[str, tuple[str, dict[str, Decision]]] = {
    "TMA loads": ("half(B=1, H=2, M=64, N=128, D=64, E=64)", {"length": 64, **LOADED}),
    "two groups, a mask": ("causal(M=128, N=128, D=64, E=64, after=-3)", {"length": 64, "width": 256, **BY_THREADS}),
    "odd sizes, 128 columns, bf16": ("causal(M=61, N=83, D=19, E=128, T=bf16)", {"length": 64, "chosen_1": 1}),
    "roles, two groups": (
        "half(B=1, H=1, M=128, N=192, D=64, E=64)",
        {"length": 64, "width": 256, **LOADED, "beside": True},
    ),
    "128 keys a step": ("half(B=1, H=1, M=33, N=256, D=64, E=64)", {"length": 128, "chosen": 1}),
    "128 numbers, bf16": ("half(B=1, H=1, M=64, N=96, D=128, E=128, T=bf16)", {"length": 64, **LOADED}),
}


SPACE = """
use std.gpu.hopper.{hopper}
use std.gpu.targets.{sm_90a}
use std.intrinsics.hopper
use std.intrinsics.hopper_registers

space group_rows for sm_90a {
    auto_inline
    tensor_online(
        groups=[
            [wgmma_m64n64k16_f16_right_columns, wgmma_m64n128k16_f16_right_columns],
            [wgmma_m64n64k16_f16_left_registers, wgmma_m64n128k16_f16_left_registers],
            [tma_64x64_f16],
        ],
        held=few,
        chance=100,
    )
    tensor_online(
        mma=mma_m16n16k16_bf16,
        loads_a=[ldmatrix_a_bf16, ldmatrix_a_columns_bf16],
        loads_b=[ldmatrix_b_x4_bf16, ldmatrix_b_columns_x4_bf16],
        groups=[
            [wgmma_m64n64k16_bf16_right_columns, wgmma_m64n128k16_bf16_right_columns],
            [wgmma_m64n64k16_bf16_left_registers, wgmma_m64n128k16_bf16_left_registers],
            [tma_64x64_bf16],
        ],
        held=few,
        chance=100,
    )
    auto_bind
    bind_single
    limits
}
"""


@lru_cache(maxsize=8)
def task(text: str, space: str = "group_rows") -> Task:
    return td.loads(f"{SPACE}{RULES.replace('use std.gpu.targets.{sm_80}', '')}\ntask t = {text} with {space}\n")["t"]


def drawn(t: Task, seed: int, **decisions: Decision) -> tuple[Trace, DeviceProgram]:
    return _drawn(t, seed, tuple(decisions.items()))


@lru_cache(maxsize=2)
def _drawn(t: Task, seed: int, decisions: tuple[tuple[str, Decision], ...]) -> tuple[Trace, DeviceProgram]:
    wanted = {"inline": False, "scores": "groups", **dict(decisions)}
    trace = whole(t.drawn_from(condition(t.model, wanted)).sample(seed))
    return trace, kernels_of(t, trace)


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("case", CASES)
def test_scores_stay_in_registers(case: str, tmp_path: Path) -> None:
    """Nothing but copies of the inputs is in shared memory, in one kernel that is right in each order of threads."""
    text, decisions = CASES[case]
    t = task(text)
    for seed in range(FIRST, FIRST + DRAWS):
        trace, kernels = drawn(t, seed, **decisions)
        (k,) = kernels.kernels
        assert {b.name.split("_")[0] for b in k.shared} == {"Q", "K", "V"} and not kernels.scratch
        code = ptx(kernels, "sm_90a")
        products = re.findall(r"wgmma\.mma_async\S+ [^;]*, p, 1, 1, ([01](?:, [01])?);", code)
        assert set(products) == {"0, 0", "1"} and ".local" not in code
        if tool("ptxas") is not None:
            said = assemble(code, "sm_90a", tmp_path / "k.cubin")
            assert " 0 bytes spill stores, 0 bytes spill loads" in said and not remarks(said)
        found = t.emulate(trace)
        assert (found.fault, found.max_error <= 1) == ("", True), trace.text
        loads = [x for c in found.counts for x in c.traffic if x.shared and not x.write]
        assert not loads  # descriptors take all of it
        assert proof_fault(t.program, trace.program) == ""


@pytest.mark.corpus("faults of rows")
def test_each_barrier_is_needed() -> None:
    text, decisions = CASES["two groups, a mask"]
    t = task(text)
    _, kernels = drawn(t, 0, **decisions)
    assert check_each_is_needed(kernels, t.program, make_inputs(t.program, 0)) == 2


@pytest.mark.corpus("wrong rows of attention")
def test_the_space_for_hopper_has_them() -> None:
    t = task("half(B=1, H=1, M=128, N=1024, D=64, E=64)", "hopper")
    trace, kernels = drawn(t, 3, inline_1=False, tensor_online=True)
    assert re.search(r"left_registers", trace.text) and len(kernels.kernels) == 1


@pytest.mark.corpus("wrong rows of attention")
def test_gpus_without_the_instructions_have_fragments_of_warps() -> None:
    t = td.loads(f"{SPACE.replace('sm_90a', 'sm_80')}{RULES}\ntask t = {CASES['TMA loads'][0]} with group_rows\n")["t"]
    trace = t.drawn_from(condition(t.model, {"inline": False, "length": 64})).sample(0)
    assert re.search(r'scores ~ sample_categorical\(\["fragments", "shared"\]\)', trace.text)
