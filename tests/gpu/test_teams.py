"""Teams take the tiles of a block in turn (ping-pong): exact, one multiplies while another one stores, faults are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from bench.gpu_static import kernels_of as machine_kernels_of
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.compiled import assemble, remarks, sass_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import (
    ArriveMbarrier,
    Device,
    DeviceProgram,
    Role,
    WaitMbarrier,
    barriers_in,
    consumers_of,
    format_device,
    inside,
    roles_in,
    team_of,
    with_buffers,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.model.counts import counted
from tensorc_dsl.ir.arrays import Array, narrow, widen
from tensorc_dsl.ir.expr import add, constant, index
from tensorc_dsl.ir.program import For, LoopKind, Program
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.schedule.trace.distribution import Decision
from tests.gpu.kernels import ptx, without_barrier
from tests.gpu.roles import lines
from tests.gpu.tensor_cores import whole_numbers
from tests.gpu.test_hopper import drawn
from tests.gpu.test_persist import task
from tests.gpu.test_pipeline_faults import changed
from tests.gpu.test_role_faults import HELD, NEVER, PHASES, WAY, of_role
from tests.gpu.test_stored_products import task as stored_task

TEAMS: dict[str, Decision] = {
    "warpgroups": True, "height": 1, "persistent": True, "copied": "tma", "copied_1": "tma", "beside": True, "cluster": -1,
    "teams": 2,
}  # fmt: skip


def tiles(rows: int, columns: int) -> dict[str, Decision]:
    """So many tiles of 64 rows and 64 columns."""
    return {"inner": (rows, 1, 1, 64), "inner_1": (columns, 1, 1, 64)}


def transposed(a: Array, b: Array) -> Array:
    return a @ b.T


def epilogue(a: Array, b: Array, d: Array) -> Array:
    return np.maximum(a @ b.T + d, 0)


CASES: dict[str, tuple[str, dict[str, Decision], Callable[..., Array]]] = {
    "as many tiles for both": ("half_transposed(M=128, N=256, K=192)", {**tiles(2, 4), "ahead": 2}, transposed),
    "one more for the first": ("half_transposed(M=128, N=192, K=128)", {**tiles(2, 3), "ahead": 2}, transposed),
    "not in all turns": ("half_transposed(M=64, N=448, K=128)", {**tiles(1, 7), "ahead": 1}, transposed),
    "two warpgroups each": (
        "half_transposed(M=384, N=64, K=128)",
        {"inner": (3, 2, 1, 64), "inner_1": (1, 1, 1, 64), "ahead": 1},
        transposed,
    ),
    "results by TMA": (
        "converted(M=192, N=192, K=128, S=f16, T=f16)",
        {**tiles(3, 3), "ahead": 1, "stored": "tma"},
        epilogue,
    ),
}


@cache
def found(case: str) -> tuple[Program, DeviceProgram]:
    text, decisions, _ = CASES[case]
    of = stored_task if text.startswith("converted") else task
    with TemporaryDirectory() as folder:
        return drawn(of(Path(folder), text), {**TEAMS, **decisions})[0]


def outcome(case: str, program: Program, kernels: DeviceProgram) -> tuple[str, bool]:
    """The fault, and whether all results are right."""
    inputs, wide = whole_numbers(program)
    (out,) = program.outputs
    expected = widen(narrow(CASES[case][2](*wide), out.dtype), out.dtype)
    fault, outputs = emulated(kernels, program, inputs)
    return fault, all(np.array_equal(widen(x[out.name], out.dtype), expected) for x in outputs)


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_teams_are_exact(case: str, tmp_path: Path) -> None:
    """In three orders of threads; and one instruction of a team is in its text once, so none is serialized or spilled."""
    program, kernels = found(case)
    (k,) = kernels.kernels
    assert consumers_of(k) == 2 * team_of(k) > 0
    assert outcome(case, program, kernels) == ("", True)
    code = ptx(kernels, "sm_90a")
    assert code.count("setmaxnreg.inc.sync") == 2 and code.count("setmaxnreg.dec.sync") == 1
    if tool("ptxas") is not None:
        said = assemble(code, "sm_90a", tmp_path / "k.cubin")
        assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
        assert not remarks(said)
    if tool("ptxas") is not None and tool("nvdisasm") is not None:
        (machine,) = machine_kernels_of(sass_of(code, "sm_90a"))
        products = sum(op.products > 0 for op in machine.ops)
        assert products == code.count("wgmma.mma_async") and products % 2 == 0
        assert len([1 for a, b in machine.loops if any(op.products for op in machine.ops[a : b + 1])]) >= 2


@pytest.mark.corpus
def test_what_stands_in_teams_is_placed() -> None:
    """Each team has bytes of its own, waits for its turn, and hands on before it waits for its last products."""
    _, kernels = found("one more for the first")
    words = ("mbarrier.", "role ", "for i_0", "for k", "wgmma.wait", "wgmma_", "one", "if", "vectorized for ax")
    assert lines(kernels, words) == [
        "mbarrier.init of 11 mbarriers, arrival counts 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4",
        "role producer, one of 128 threads, setmaxnreg 32 {",
        "for i_0_j_0.turn in 0 .. 3 {",
        "for k_0 in 0 .. 2 {",
        "mbarrier.try_wait 6 + k_0 % 3",
        "one thread starts TMA loads, expect_tx 16384 bytes at mbarrier i_0_j_0.turn % 2 * 3 + k_0 % 3 {",
        "role consumer.0, 128 threads, setmaxnreg 232 {",
        "for i_0_j_0.turn in 0 .. 2 {",
        "mbarrier.try_wait 9",
        "for k_0 in 0 .. 2 {",
        "mbarrier.try_wait k_0 % 3",
        "wgmma",
        "wgmma.wait_group 1",
        "if k_0 > 0 {",
        "mbarrier.arrive (k_0 + 2) % 3 + 6",
        "mbarrier.arrive 10",
        "wgmma.wait_group 0",
        "mbarrier.arrive 7",
        "vectorized for ax1_2_2 in 0 .. 2 {",
        "role consumer.1, 128 threads, setmaxnreg 232 {",
        "for i_0_j_0.turn in 0 .. 1 {",
        "mbarrier.try_wait 10",
        "for k_0 in 0 .. 2 {",
        "mbarrier.try_wait k_0 % 3 + 3",
        "wgmma",
        "wgmma.wait_group 1",
        "if k_0 > 0 {",
        "mbarrier.arrive (k_0 + 2) % 3 + 6",
        "mbarrier.arrive 9",
        "wgmma.wait_group 0",
        "mbarrier.arrive 7",
        "vectorized for ax1_2_2 in 0 .. 2 {",
    ]


@pytest.mark.corpus
def test_each_team_has_its_own_results_in_shared_memory() -> None:
    _, kernels = found("results by TMA")
    (k,) = kernels.kernels
    first, second = (b for b in k.shared if b.name.startswith("Y_shared"))
    assert (second.name, second.size, second.swizzle) == (f"{first.name}.1", first.size, first.swizzle)
    assert second.offset >= first.offset + first.size * first.dtype.bytes
    producer, *teams = roles_in(k.body)
    assert barriers_in(producer.body) == 0 and [barriers_in(t.body) for t in teams] == [2, 2]
    code = ptx(kernels, "sm_90a")
    numbers = re.findall(r"(?:bar|barrier\.cta)\.sync\S*\s+(\d), 128", code)
    assert sorted(numbers) == ["1", "1", "2", "2"]
    view = cuda_text(kernels)
    assert "barrier.cta.sync.aligned 2, 128;" in view and "const auto own_ = thread_ - 128;" in view


@pytest.mark.corpus
def test_the_model_counts_teams_side_by_side() -> None:
    """All products are there, each team waits for half of them, and one team for all."""
    _, kernels = found("as many tiles for both")
    (k,) = kernels.kernels
    text, decisions, _ = CASES["as many tiles for both"]
    with TemporaryDirectory() as folder:
        _, alone = drawn(task(Path(folder), text), {**TEAMS, **decisions, "teams": 1})[0]
    bytes_of = {p.name: p.dtype.bytes for p in kernels.params}
    two, one = (counted(x, {}, bytes_of) for x in (k, alone.kernels[0]))
    assert two.products == one.products and two.sectors == one.sectors
    assert two.latency(two.instructions, {}) < one.latency(one.instructions, {})


RACE = r"meet without a barrier between them"


def bytes_of_the_other(s: Device) -> Device:
    """The second team waits for the bytes of the first one."""
    if isinstance(s, WaitMbarrier) and constant(s.at) is None:
        return replace(s, at=add(s.at, index(-3)))
    return s


def no_turn(s: Device) -> Device | None:
    return None if isinstance(s, ArriveMbarrier) and s.slots == 0 else s


def released_at_once(s: Device) -> Device | None:
    return None if isinstance(s, ArriveMbarrier) and s.slots else s


FAULTS: dict[str, tuple[Callable[[Device], Device | None], str]] = {
    "bytes of the other team": (of_role("consumer.1", bytes_of_the_other), rf"{NEVER}|{WAY}|{PHASES}|{HELD}"),
    "a turn is not handed on": (of_role("consumer.0", no_turn), NEVER),
    "nobody hands on": (no_turn, NEVER),
    "a slot is not released": (of_role("consumer.1", released_at_once), NEVER),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_between_teams_is_found(case: str) -> None:
    change, said = FAULTS[case]
    program, kernels = found("as many tiles for both")
    fault, _ = outcome("as many tiles for both", program, changed(kernels, change))
    assert re.search(said, fault), fault


@pytest.mark.corpus
def test_results_that_teams_share_are_found() -> None:
    """The second team stages its results where the first one does: no barrier orders them."""
    program, kernels = found("results by TMA")

    def same(s: Device) -> Device:
        return replace(s, body=with_buffers(s.body, {"Y_shared.1": "Y_shared"})) if isinstance(s, Role) else s

    fault, _ = outcome("results by TMA", program, changed(kernels, same))
    assert re.search(rf"{RACE}|in flight that reads", fault), fault


@pytest.mark.corpus
def test_each_barrier_of_a_team_is_needed() -> None:
    program, kernels = found("results by TMA")
    (k,) = kernels.kernels
    for number in range(1, barriers_in(k.body)):
        fewer = replace(kernels, kernels=(without_barrier(k, number),))
        fault, _ = outcome("results by TMA", program, fewer)
        assert fault, number


@pytest.mark.corpus
def test_a_block_without_a_second_turn_has_one_team(tmp_path: Path) -> None:
    """Two tiles for two multiprocessors: there is no loop, and no team."""
    program, _ = found("one more for the first")
    many = lower_device(program, ("sm_80", "sm_90", "sm_90a"), cores=6)
    assert "has one team: no block has two iterations of a persistent loop" in format_device(many)
    (k,) = many.kernels
    assert team_of(k) == 0 and sum(isinstance(s, Role) for s in inside(k.body)) == 2
    assert outcome("one more for the first", program, many) == ("", True)


def test_teams_with_several_tiles_in_a_turn_are_refused() -> None:
    """Teams would wait for each other within an iteration, and the loads come in the order of iterations."""
    program, _ = found("one more for the first")
    with pytest.raises(LowerError, match="several tiles are computed in one; leave `teams` out"):
        lower_device(in_two(program), ("sm_80", "sm_90", "sm_90a"), cores=2)


def in_two(program: Program) -> Program:
    """Each tile of the program computed twice, one behind the other."""
    (top,) = program.body
    assert isinstance(top, For)
    twice = For("again", index(2), top.body, LoopKind.SERIAL)
    return replace(program, body=(replace(top, body=(twice,)),))
