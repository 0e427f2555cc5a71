"""Blocks that share the steps of all tiles (stream-K): exact in each order of threads, proved, none longer than its work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, DeviceProgram, Role, Steps, collectives_in, inside
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.model.cycles import estimates
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tests.gpu.kernels import ptx, whole
from tests.gpu.tensor_cores import DRAWS, whole_numbers
from tests.gpu.test_split import blocks
from tests.programs import proof_fault
from tests.stdlib.gpu_checks import COMPUTES, target_of_few, task

SIZES = {
    "odd sizes": ("any_product(M=33, N=29, K=259, T=i32, Acc=i32)", 3),
    "one tile": ("any_product(M=7, N=5, K=1031, T=i32, Acc=i32)", 4),
    "fewer tiles than blocks": ("any_turned(M=40, N=33, K=517, T=f32, Acc=f32)", 7),
    "a product for each of several": ("half_batched(B=3, M=33, N=40, K=300)", 2),
}

TENSOR_SIZES = {
    "odd sizes": ("half_matmul(M=90, N=88, K=200)", 3),
    "one tile": ("half_transposed(M=16, N=16, K=1040)", 4),
    "bytes": ("any_product(M=64, N=48, K=512, T=i8, Acc=i32)", 5),
}


_LOADED: dict[str, Decision] = {"copied": "tma", "copied_1": "tma"}

GROUP_SIZES: dict[str, tuple[str, int, dict[str, Decision]]] = {
    "odd sizes": ("half_matmul(M=90, N=200, K=200)", 3, {}),
    "by threads": ("half_transposed(M=192, N=128, K=320)", 4, {"copied": "threads", "ahead": 1}),
    "loads": ("half_matmul(M=192, N=128, K=320)", 4, {**_LOADED, "beside": False, "ahead": 2}),
    "roles": ("half_matmul(M=192, N=128, K=320)", 4, {**_LOADED, "beside": True, "ahead": 2}),
    "steps in f32": ("two_types(M=128, N=192, K=640, S=f8e4m3, T=f8e5m2)", 4, {**_LOADED, "beside": True, "ahead": 1}),
}


def few(folder: Path, text: str, cores: int, space: str) -> Task:
    """The task `t = text` for a GPU with so many multiprocessors."""
    uses = f"use std.gpu.{space}.{{{space}}}\n{target_of_few('few', cores, hopper=space == 'hopper')}"
    (folder / "t.tsched").write_text(f"{uses}{COMPUTES}\ntask t = {text} with {space}\n")
    return td.load(folder / "t.tsched", target="few")["t"]


def streamed(t: Task, count: int, **more: Decision) -> Iterator[Trace]:
    """So many draws whose blocks share steps."""
    found = 0
    model = t.drawn_from(condition(t.model, {"streamed": True, "in_parts": False, **more}))
    for seed in range(60):
        trace = whole(model.sample(seed))
        if "stream_k(" in trace.text:
            yield trace
            found += 1
        if found == count:
            return
    raise AssertionError("no draw shares steps")


def check(t: Task, trace: Trace, cores: int) -> DeviceProgram:
    """The kernels, which are proved, and exact in each order of threads, with the same bits in each."""
    assert proof_fault(t.program, trace.program) == ""
    found = lower_device(trace.program, tuple(t.target.feature_names), cores=cores)
    inputs, (a, b) = whole_numbers(t.program)
    fault, outputs = emulated(found, t.program, inputs)
    assert fault == ""
    x, y = (a.astype(np.float64), b.astype(np.float64))
    turned = trace.compute in ("any_turned", "half_transposed", "two_types")
    want = (x.T if trace.compute == "any_turned" else x) @ (y.T if turned else y)
    for out in outputs:
        np.testing.assert_array_equal(out["C"], want)
    return found


def main(found: DeviceProgram) -> DeviceKernel:
    """The kernel that computes parts: the only one that copies to shared memory."""
    return next(k for k in found.kernels if k.shared)


@pytest.mark.corpus("ranges of products")
@pytest.mark.parametrize("case", SIZES)
def test_a_product_is_exact_in_each_order_of_threads(case: str, tmp_path: Path) -> None:
    text, cores = SIZES[case]
    t = few(tmp_path, text, cores, "default")
    for trace in streamed(t, DRAWS):
        grid = blocks(main(check(t, trace, cores)))
        assert cores - 1 <= grid <= 2 * cores


@pytest.mark.corpus("ranges of products")
@pytest.mark.parametrize("case", TENSOR_SIZES)
def test_parts_are_computed_by_tensor_cores(case: str, tmp_path: Path) -> None:
    text, cores = TENSOR_SIZES[case]
    t = few(tmp_path, text, cores, "tensor_core")
    for trace in streamed(t, DRAWS, tensor_core=True):
        found = check(t, trace, cores)
        assert any(collectives_in(main(found).body))
        assert "mma.sync" in ptx(found, "sm_80")


@pytest.mark.corpus("ranges of products")
@pytest.mark.parametrize("case", GROUP_SIZES)
def test_parts_are_computed_by_warpgroups(case: str, tmp_path: Path) -> None:
    text, cores, decisions = GROUP_SIZES[case]
    t = few(tmp_path, text, cores, "hopper")
    for trace in streamed(t, DRAWS, warpgroups=True, **decisions):
        found = check(t, trace, cores)
        code = ptx(found, "sm_90a")
        assert "wgmma.mma_async" in code and (".shared::cluster.global" in code) >= ("beside" in decisions)
        if tool("ptxas") is not None:
            assert registers_of(code, "sm_90a").spilled == ""


@pytest.mark.corpus("ranges of products")
@pytest.mark.parametrize(
    ("space", "case"), [("default", SIZES["odd sizes"]), ("tensor_core", TENSOR_SIZES["odd sizes"])]
)
def test_a_block_runs_the_tiles_and_steps_of_its_range_alone(space: str, case: tuple[str, int], tmp_path: Path) -> None:
    """Its loops end where the range does, wherever a range has parts of several tiles."""
    text, cores = case
    t = few(tmp_path, text, cores, space)
    nested = 0
    for trace in streamed(t, 4, **({"tensor_core": True} if space == "tensor_core" else {})):
        steps = [s for s in inside(main(lower_device(trace.program, cores=cores)).body) if isinstance(s, Steps)]
        own = [s for s in steps if s.var.endswith("_part")]
        nested += len(own) > 1
        assert len(own) < 2 or all(constant(s.end) is None for s in own)
        if nested and DRAWS == 1:
            break
    assert nested


WAVES = "half_matmul(M=768, N=2432, K=4096)"
"""On 108 multiprocessors the 114 tiles of 128 x 128 are 1.05 rounds."""

TILE = {
    "inner": (6, 2, 4, 16),
    "inner_1": (19, 2, 4, 16),
    "inner_2": (128, 2, 16),
    "ahead": 3,
    "width": 8,
    "width_1": 8,
}

A100 = Target("cuda", "sm_80", cores=108, threads=1024, shared_memory=166912, registers=65536)


@pytest.mark.corpus("ranges of products")
def test_little_more_than_a_round_of_tiles_takes_less_time_by_the_model(tmp_path: Path) -> None:
    t = task(tmp_path, WAVES, "tensor_core")
    cycles: list[float] = []
    for drawn in ({"streamed": False}, {"streamed": True, "ranges": 108}, {"streamed": True, "ranges": 216}):
        given = {"tensor_core": True, "in_parts": False, **TILE, **drawn}
        trace = whole(t.drawn_from(condition(t.model, given)).sample(0))
        assert ("stream_k(" in trace.text) == drawn["streamed"]
        found = lower_device(trace.program, cores=108)
        cycles.append(sum(x.cycles for x in estimates(found, A100, {})))
        for cpu in ("sm_80", "sm_90") if tool("ptxas") is not None else ():
            assert registers_of(ptx(found, cpu), cpu).spilled == ""
    assert cycles[2] < 0.9 * cycles[0]
    assert cycles[1] < cycles[0]


GROUP_TILE: dict[str, Decision] = {
    "inner": (14, 2, 1, 64), "inner_1": (10, 1, 2, 64), "times": 2, **_LOADED, "beside": True, "ahead": 3,
}  # fmt: skip


@pytest.mark.corpus("ranges of products")
def test_each_role_runs_the_steps_of_its_range_alone(tmp_path: Path) -> None:
    """On 132 multiprocessors the 140 tiles of 128 x 128 are 1.06 rounds."""
    t = task(tmp_path, "half_matmul(M=1792, N=1280, K=4096)", "hopper", "sm_90a")
    cycles: list[float] = []
    for drawn in ({"streamed": False, "stored": "registers", "persistent": False}, {"streamed": True, "ranges": 132}):
        given = {"warpgroups": True, **GROUP_TILE, **drawn}
        trace = whole(t.drawn_from(condition(t.model, given)).sample(0))
        found = lower_device(trace.program, tuple(t.target.feature_names), cores=132)
        cycles.append(sum(x.cycles for x in estimates(found, t.target, {})))
        if drawn["streamed"]:
            roles = [s for s in inside(main(found).body) if isinstance(s, Role)]
            for role in roles:
                own = [s for s in inside(role.body) if isinstance(s, Steps) and s.var.endswith("_part")]
                assert len(own) == 2 and all(constant(s.end) is None for s in own)
            assert [r.name for r in roles] == ["producer", "consumer"]
    assert cycles[1] < 0.8 * cycles[0]


@pytest.mark.corpus("ranges of products")
def test_whole_rounds_are_left_alone(tmp_path: Path) -> None:
    """Eight tiles of 64 x 32 are whole rounds of two multiprocessors, and nothing is left to share."""
    t = few(tmp_path, "any_product(M=256, N=64, K=512, T=f32, Acc=f32)", 2, "default")
    drawn = condition(t.model, {"in_parts": False, "streamed": False})
    for seed in range(6):
        trace = t.drawn_from(drawn).sample(seed)
        tiles = blocks(lower_device(trace.program, cores=2).kernels[0])
        assert tiles % 4 or "streamed ~" not in trace.text
