"""`std.gpu.hopper` stores results by TMA: exact with roles, turns and epilogues, staged without bank conflicts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import (
    Barrier,
    DeviceKernel,
    DeviceProgram,
    ProxyFence,
    TmaStore,
    WaitTmaStores,
    barriers_in,
    inside,
    roles_in,
    tma_in,
    tma_stores_in,
)
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import Array, narrow, widen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.trace.distribution import Decision
from tests.gpu.kernels import ptx, without_barrier
from tests.gpu.tensor_cores import DRAWS, whole_numbers
from tests.gpu.test_hopper import drawn
from tests.gpu.test_persist import TARGET
from tests.gpu.test_pipeline_faults import changed
from tests.gpu.test_tma import removed
from tests.gpu.test_tma_stores import RACE, REUSED, UNKNOWN
from tests.stdlib.gpu_checks import COMPUTES

MORE = """
compute converted(A: S[M, K], B: S[N, K], D: f32[N]; S: dtype, T: dtype) -> Y: T[M, N] {
    let C[i, j] = sum[k] f32(A[i, k]) * f32(B[j, k])
    Y[i, j] = T(max(C[i, j] + D[j], 0))
}
"""


def product(a: Array, b: Array) -> Array:
    return a @ b


def epilogue(a: Array, b: Array, d: Array) -> Array:
    return np.maximum(a @ b.T + d, 0)


TMA: dict[str, Decision] = {"copied": "tma", "copied_1": "tma"}
FILLED: dict[str, Decision] = {"filled": True, "filled_1": True}
ROLES: dict[str, Decision] = {**TMA, "beside": True, "cluster": -1, "teams": 1, "ahead": 1}

CASES: dict[str, tuple[str, dict[str, Decision], Callable[..., Array]]] = {
    "f32": ("half_matmul(M=64, N=128, K=72)", {}, product),
    "f32, odd": ("half_matmul(M=200, N=140, K=72)", {}, product),
    "f32, a batch": ("half_batched(B=2, M=64, N=64, K=64)", {}, product),
    "f32, roles beyond the array": ("half_matmul(M=72, N=136, K=72)", {**ROLES, **FILLED}, product),
    "f16, an epilogue": ("converted(M=128, N=128, K=64, S=f16, T=f16)", {}, epilogue),
    "f16, two warpgroups": (
        "converted(M=128, N=256, K=64, S=f16, T=f16)",
        {"inner": (1, 2, 1, 64), "inner_1": (2, 1, 2, 64), "times": 2},
        epilogue,
    ),
    "f16, odd": ("converted(M=100, N=200, K=64, S=f16, T=f16)", {}, epilogue),
    "f16, turns": ("converted(M=192, N=128, K=64, S=f16, T=f16)", {"persistent": True, **TMA}, epilogue),
    "f16, roles and turns": (
        "converted(M=192, N=144, K=128, S=f16, T=f16)",
        {"persistent": True, **ROLES, "inner": (3, 1, 1, 64), "inner_1": (3, 1, 1, 64)},
        epilogue,
    ),
    "bf16, roles": ("converted(M=128, N=64, K=128, S=bf16, T=bf16)", ROLES, epilogue),
}


def task(folder: Path, text: str) -> Task:
    """The task `t = text` over `std.gpu.hopper`, for a GPU of two multiprocessors."""
    path = folder / "t.tsched"
    path.write_text(f"use std.gpu.hopper\n{TARGET}\n{COMPUTES}\n{MORE}\ntask t = {text} with hopper\n")
    return td.load(path)["t"]


@cache
def stored(case: str) -> list[tuple[Program, DeviceProgram]]:
    text, decisions, _ = CASES[case]
    with TemporaryDirectory() as folder:
        return drawn(task(Path(folder), text), {"warpgroups": True, "stored": "tma", **decisions}, "stored")


def stores_by_tma(found: DeviceProgram) -> bool:
    return any(True for k in found.kernels for _ in tma_stores_in(k.body))


def code_of(code: str, kernel: DeviceKernel) -> str:
    """The PTX of one kernel."""
    _, mine = code.split(f".entry {kernel.name}(")
    return mine.partition(".entry ")[0]


def outcome(case: str, program: Program, found: DeviceProgram) -> tuple[str, bool]:
    """The fault, and whether all results are right."""
    inputs, wide = whole_numbers(program)
    (out,) = program.outputs
    expected = widen(narrow(CASES[case][2](*wide), out.dtype), out.dtype)
    fault, outputs = emulated(found, program, inputs)
    return fault, all(np.array_equal(widen(x[out.name], out.dtype), expected) for x in outputs)


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_stored_products_are_exact(case: str, tmp_path: Path) -> None:
    for program, found in stored(case):
        assert stores_by_tma(found)
        assert outcome(case, program, found) == ("", True)
        code = ptx(found, "sm_90a")
        assert ".local" not in code
        # What is not filled in by copies is padded in a kernel of its own, by threads.
        assert [".bulk_group" in code_of(code, k) for k in found.kernels] == [False] * (len(found.kernels) - 1) + [True]
        assert "st.global" not in code_of(code, found.kernels[-1])
        if tool("ptxas") is not None:
            said = assemble(code, "sm_90a", tmp_path / "k.cubin")
            assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
            assert "C75" not in said
        if tool("ptxas") is not None and tool("nvdisasm") is not None:
            assert sass_of(code, "sm_90a").count("UTMASTG") >= code.count(".bulk_group")


@pytest.mark.corpus
@pytest.mark.parametrize("case", ["f32", "f16, two warpgroups", "bf16, roles"])
def test_results_are_staged_without_bank_conflicts(case: str) -> None:
    """Each pass over the banks of shared memory has all its bytes, for what lanes store and what TMA reads."""
    program, found = stored(case)[0]
    inputs, _ = whole_numbers(program)
    (out,) = program.outputs
    arrays = {**inputs, out.name: narrow(np.zeros(shape_of(out)), out.dtype)}
    fault, (counts,) = emulation(found).count(arrays, {})
    assert fault == ""
    stage = f"{out.name}_shared"
    mine = [x for x in counts.traffic if x.buffer in (stage, out.name)]
    assert {(x.buffer, x.write) for x in mine} == {(stage, True), (stage, False), (out.name, True)}
    assert all(x.moves == x.least for x in mine), mine


@pytest.mark.corpus
def test_a_tile_is_stored_while_the_next_one_is_loaded_and_multiplied() -> None:
    """The consumer waits for the store of the tile before only where it writes the next one."""
    _, found = stored("f16, roles and turns")[0]
    (k,) = found.kernels
    producer, consumer = roles_in(k.body)
    assert not list(tma_stores_in(producer.body)) and barriers_in(producer.body) == 0
    kinds = [type(s) for s in inside(consumer.body) if isinstance(s, WaitTmaStores | Barrier | ProxyFence | TmaStore)]
    assert kinds == [WaitTmaStores, Barrier, ProxyFence, Barrier, TmaStore, WaitTmaStores]
    assert isinstance(consumer.body[-1], WaitTmaStores)


@pytest.mark.corpus
@pytest.mark.parametrize("case", ["f16, turns", "f16, roles and turns"])
def test_what_is_missing_between_tiles_is_found(case: str) -> None:
    program, found = stored(case)[0]
    (k,) = found.kernels

    ends = [body[-1] for body in (k.body, *(r.body for r in roles_in(k.body)))]
    (wait,) = {id(s): s for s in ends if isinstance(s, WaitTmaStores)}.values()
    inner = [s for s in inside(k.body) if isinstance(s, WaitTmaStores) and s is not wait]
    assert len(inner) == 1
    fault, _ = outcome(case, program, changed(found, lambda s: None if s is inner[0] else s))
    assert re.search(rf"{REUSED}|{RACE}", fault), fault
    fault, _ = outcome(case, program, changed(found, removed(ProxyFence)))
    assert re.search(UNKNOWN, fault), fault
    for number in range(barriers_in(k.body)):
        fault, _ = outcome(case, program, replace(found, kernels=(without_barrier(k, number),)))
        assert fault, number


@pytest.mark.corpus
@pytest.mark.parametrize(
    "text",
    [
        "half_matmul(M=64, N=70, K=64)",  # rows are not whole units
        "half_matmul(M=50, N=64, K=64)",  # a tile is larger than the array
        "conv2d_nhwc(N=1, H=10, W=10, CI=64, KH=3, KW=3, CO=64, T=f16, Acc=f32)",
    ],
)
def test_where_tma_stores_do_not_fit_nothing_is_drawn(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.tsched"
    path.write_text(
        f"use std.gpu.hopper\nuse std.ops.{{conv2d_nhwc}}\n{TARGET}\n{COMPUTES}\ntask t = {text} with hopper\n"
    )
    t = td.load(path)["t"]
    for program, found in drawn(t, {"warpgroups": True}):
        assert not stores_by_tma(found), program.name


@pytest.mark.corpus
def test_what_shared_memory_has_no_room_for_is_stored_from_registers(tmp_path: Path) -> None:
    """256 x 192 results of f32 are 192 KB; with one step of both factors they are more than a block has."""
    t = task(tmp_path, "half_matmul(M=256, N=192, K=64)")
    tiles: dict[str, Decision] = {"inner": (1, 4, 1, 64), "inner_1": (1, 1, 3, 64)}
    for _, found in drawn(t, {"warpgroups": True, "stored": "tma", **TMA, **tiles}):
        assert not stores_by_tma(found) and found.kernels[0].shared_bytes + 256 * 192 * 4 > 232448


def test_a_stage_has_room_for_what_runs_ahead(tmp_path: Path) -> None:
    """Versions of what is loaded and one stage are within the shared memory of a block."""
    t = task(tmp_path, "converted(M=256, N=256, K=512, S=f16, T=f16)")
    tiles: dict[str, Decision] = {"inner": (2, 2, 1, 64), "inner_1": (1, 1, 4, 64)}
    for n in range(max(2, DRAWS)):
        decided: dict[str, Decision] = {"warpgroups": True, "stored": "tma", **TMA, **tiles, "ahead": n % 2}
        for _, found in drawn(t, decided):
            (k,) = found.kernels
            assert k.shared_bytes <= 232448 and any(b.name == "Y_shared" for b in k.shared)
            assert all(x.tile is not None for s in tma_stores_in(k.body) for x in tma_in(s.body))
