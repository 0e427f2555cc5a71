"""Persistent loops: a block for each multiprocessor takes iterations in turn, with barriers and phases that go on."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram, barriers_in, format_device, tma_in, tma_loads_in
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.lower.private_storage import evaluate
from tensorc_dsl.backend.memory import aligned_copy
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.expr import free_vars, index
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import Decision
from tests.gpu.kernels import ptx, without_barrier
from tests.gpu.roles import exact, lines
from tests.gpu.test_hopper import drawn
from tests.stdlib.gpu_checks import COMPUTES

TURNED = """
program turned(A: f32[BLOCKS * 9], C: f32[BLOCKS * 9]) {
    buffer T: f32[9] in "shared"
    bound("block.x") for b in BLOCKS @("persistent", true) {
        bound("thread.x") for i in 9 {
            block T { spatial v in 9 = i; spatial w in BLOCKS = b; T[v] = A[w * 9 + v] + 1.0 }
        }
        bound("thread.x") for j in 9 {
            block C { spatial v in 9 = j; spatial w in BLOCKS = b; C[w * 9 + v] = T[8 - v] }
        }
    }
}
"""


def turned(blocks: int) -> Program:
    return parse_program(
        Source("p.tsched", TURNED.replace("BLOCKS * 9", str(9 * blocks)).replace("BLOCKS", str(blocks)))
    )


@pytest.mark.corpus
@pytest.mark.parametrize(("cores", "grid"), [(0, 7), (1, 1), (2, 2), (3, 3), (6, 6), (7, 7), (132, 7)])
def test_blocks_take_iterations_in_turn(cores: int, grid: int) -> None:
    program = turned(7)
    found = lower_device(program, cores=cores)
    assert found.kernels[0].grid[0] == index(grid)
    assert (".turn" in format_device(found)) == (grid < 7)
    a = np.arange(63, dtype=np.float32)
    fault, outputs = emulated(found, program, {"A": a})
    assert fault == "" and all(np.array_equal(x["C"], (a + 1).reshape(7, 9)[:, ::-1].ravel()) for x in outputs)


def test_a_guard_stands_where_turns_are_no_whole_number() -> None:
    assert lines(lower_device(turned(7), cores=2), ("for b", "if")) == [
        "for b.turn in 0 .. 4 {",
        "if b.turn * 2 + block.x < 7 {",
    ]
    assert lines(lower_device(turned(6), cores=2), ("for b", "if")) == ["for b.turn in 0 .. 3 {"]


def test_a_turn_waits_for_the_one_before() -> None:
    """Shared memory is filled again: besides the barrier of one iteration, there is one between two."""
    program = turned(5)
    found = lower_device(program, cores=2)
    (k,) = found.kernels
    assert barriers_in(k.body) == 2
    a = np.arange(45, dtype=np.float32)
    for n in range(2):
        fewer = DeviceProgram(found.name, found.params, found.scratch, found.dims, (without_barrier(k, n),))
        assert "meet without a barrier" in emulated(fewer, program, {"A": a})[0]


def test_each_axis_has_turns_of_its_own() -> None:
    """Five blocks along y and three along z, by two of each."""
    program = parse_program(
        Source(
            "p.tsched",
            """
program grid(A: f32[5, 3, 4], C: f32[5, 3, 4]) {
    bound("block.y") for i in 5 @("persistent", true) {
        bound("block.z") for j in 3 @("persistent", true) {
            bound("thread.x") for t in 4 {
                block C {
                    spatial vi in 5 = i; spatial vj in 3 = j; spatial vt in 4 = t
                    C[vi, vj, vt] = A[vi, vj, 3 - vt]
                }
            }
        }
    }
}
""",
        )
    )
    found = lower_device(program, cores=2)
    assert found.kernels[0].grid == (index(1), index(2), index(2))
    a = np.arange(60, dtype=np.float32).reshape(5, 3, 4)
    fault, outputs = emulated(found, program, {"A": a})
    assert fault == "" and all(np.array_equal(x["C"], a[:, :, ::-1]) for x in outputs)


def test_an_open_number_of_iterations_is_that_of_the_call() -> None:
    text = TURNED.replace("f32[BLOCKS * 9]", "f32[M, 9]").replace("w * 9 + v", "w, v").replace("BLOCKS", "M")
    program = parse_program(Source("p.tsched", text))
    kernels = emulation(lower_device(program, cores=3))
    for rows in (0, 1, 3, 8):
        a = np.arange(rows * 9, dtype=np.float32).reshape(rows, 9)
        arrays = {"A": aligned_copy(a), "C": aligned_copy(np.full((rows, 9), np.nan, np.float32))}
        assert kernels.run(arrays, {"M": rows}, "forward") == ""
        np.testing.assert_array_equal(arrays["C"], a[:, ::-1] + 1)


TARGET = """
target few = cuda(
    cpu="sm_90a",
    features=["sm_80", "sm_90", "sm_90a"],
    cores=2,
    vector_bits=128,
    threads=1024,
    shared_memory=232448,
    registers=65536,
)
"""


def task(folder: Path, text: str) -> Task:
    """The task `t = text` over `std.gpu.hopper`, for a GPU of two multiprocessors."""
    path = folder / "t.tsched"
    path.write_text(f"use std.gpu.hopper\n{TARGET}\n{COMPUTES}\ntask t = {text} with hopper\n")
    return td.load(path)["t"]


@cache
def product(by: str, beside: bool, rows: int = 2, columns: int = 3, height: int = 1) -> tuple[Program, DeviceProgram]:
    """A product of some tiles with copies ahead, by TMA or by threads, with a role of their own or none."""
    boxes: dict[str, Decision] = {"beside": beside, **({"teams": 1} if beside else {})} if by == "tma" else {}
    late: dict[str, Decision] = {} if beside else {"late": True}
    ways: dict[str, Decision] = {"copied": by, "copied_1": by, "ahead": 2, "cluster": -1, **boxes, **late}
    tiles: dict[str, Decision] = {"inner": (rows, 1, 1, 64), "inner_1": (columns, 1, 1, 64)}
    with TemporaryDirectory() as folder:
        t = task(Path(folder), f"half_transposed(M={64 * rows}, N={64 * columns}, K=128)")
        return drawn(t, {"warpgroups": True, "height": height, "persistent": True, **tiles, **ways})[0]


@pytest.mark.corpus
@pytest.mark.parametrize(("by", "beside"), [("tma", True), ("tma", False), ("threads", False)])
def test_tiles_of_a_product_are_taken_in_turn(by: str, beside: bool, tmp_path: Path) -> None:
    """Three tiles for each of two blocks: phases of mbarriers, groups of copies and products go on in the next one."""
    program, found = product(by, beside)
    assert lines(found, ("for i_0",)) == ["for i_0_j_0.turn in 0 .. 3 {"] * (2 if beside else 1)
    assert exact(program, found) == ("", True)
    if tool("ptxas") is not None:
        said = assemble(ptx(found, "sm_90a"), "sm_90a", tmp_path / "k.cubin")
        assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
        assert "C75" not in said


@pytest.mark.corpus
def test_the_producer_begins_the_next_tile_while_the_last_one_is_stored() -> None:
    """No barrier is in the turns, and stores of a tile are in the other role alone."""
    _, found = product("tma", True)
    assert lines(found, ("barrier", "role ", "for", "one", "wgmma_", "vectorized", "mbarrier.arrive")) == [
        "barrier",
        "role producer, one of 32 threads {",
        "for i_0_j_0.turn in 0 .. 3 {",
        "for k_0 in 0 .. 2 {",
        "one thread starts TMA loads, expect_tx 16384 bytes at mbarrier k_0 % 3 {",
        "role consumer, 128 threads {",
        "for i_0_j_0.turn in 0 .. 3 {",
        "vectorized for j_1_2_init_2 in 0 .. 2 {",
        "for k_0 in 0 .. 2 {",
        "wgmma",
        "mbarrier.arrive (k_0 + 2) % 3 + 3",
        "mbarrier.arrive 4",
        "vectorized for ax1_2_2 in 0 .. 2 {",
    ]


@pytest.mark.corpus
@pytest.mark.parametrize("height", [2, 4])
def test_blocks_that_follow_each_other_share_rows_and_columns(height: int) -> None:
    """The tiles of blocks in their order: `height` rows of a column, then those of the next column."""
    program, found = product("tma", True, 4, 2, height)
    assert exact(program, found) == ("", True)
    (k,) = found.kernels
    (box,) = (
        s.tile for f in tma_loads_in(k.body) for s in tma_in(f.body) if s.tile is not None and s.tile.map.array == "A"
    )
    (turn,) = (x for x in free_vars(box.origin[0]) if x.endswith(".turn"))
    n = np.arange(8, dtype=np.int64)
    tiles = evaluate(box.origin[0], {turn: n // 2, "block.x": n % 2}) // 64
    assert [*tiles] == [first + n for first in range(0, 4, height) for _ in range(2) for n in range(height)]
