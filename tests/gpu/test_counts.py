"""What the accesses of a kernel cost: sectors of global memory, and passes over the banks of shared memory."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tensorc_dsl.backend.cuda.emulate import emulation
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Barrier, Device, DeviceKernel, DeviceProgram, Phase, Shared
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import Counts, Traffic
from tensorc_dsl.cli.main import main
from tensorc_dsl.ir.dtypes import F16, F32, DType
from tensorc_dsl.ir.expr import ONE, Compare, Const, Expr, Load, Var, add, floordiv, floormod, index, mul
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, Param
from tests.stdlib.gpu_checks import task

T, V, R = Var(THREAD), Var("v"), Var("r")
SIZE = 4096


def counted(*body: Device, threads: int = 32, blocks: int = 1, dtype: DType = F32) -> Counts:
    shared = (Shared("S", dtype, SIZE, 0),)
    size = dtype.bytes * SIZE
    k = DeviceKernel("k", (index(blocks), ONE, ONE), threads, ("X",), frozenset(("X",)), (), shared, size, body)
    p = DeviceProgram("k", (Param("X", dtype, (index(SIZE),), True),), (), (), (k,))
    x = aligned_empty((SIZE,), np.dtype(np.float32 if dtype is F32 else np.float16))
    x[...] = 0
    fault, (found,) = emulation(p).count({"X": x}, {})
    assert fault == ""
    return found


def put(buffer: str, at: Expr, dtype: DType = F32) -> Store:
    return Store(buffer, (at,), Const(1.0, dtype))


def lanes(s: Flat, n: int) -> Loop:
    return Loop("v", index(0), index(n), LoopKind.VECTORIZED, (s,))


def only(c: Counts) -> Traffic:
    (found,) = c.traffic
    return found


@pytest.mark.parametrize(
    ("at", "moves", "least"),
    [
        (T, 4, 4),  # neighbours: 128 bytes are four sectors
        (add(T, ONE), 5, 4),  # not aligned
        (mul(T, index(2)), 8, 4),
        (mul(T, index(8)), 32, 4),  # each thread a sector of its own
        (mul(T, index(64)), 32, 4),
        (index(5), 1, 1),  # one element for all
        (floordiv(T, index(8)), 1, 1),
    ],
)
def test_sectors_of_global_memory(at: Expr, moves: int, least: int) -> None:
    body = Phase((Store("S", (T,), Load("X", (at,), F32)),))
    load, store = counted(body).traffic
    assert load == Traffic("S", "X", False, False, 1, moves, least)
    assert store == Traffic("S", "S", True, True, 1, 1, 1)


@pytest.mark.parametrize(
    ("at", "moves"),
    [
        (T, 1),
        (mul(T, index(2)), 2),
        (mul(T, index(32)), 32),  # all in one bank
        (mul(T, index(33)), 1),  # space between rows
        (mul(T, index(3)), 1),
        (index(5), 1),  # a word is there for all
        (add(mul(floormod(T, index(4)), index(32)), floordiv(T, index(4))), 4),
    ],
)
def test_passes_over_banks(at: Expr, moves: int) -> None:
    load, _ = counted(Phase((Store("X", (T,), Load("S", (at,), F32)),))).traffic
    assert (load.shared, load.requests, load.moves, load.least) == (True, 1, moves, 1)


@pytest.mark.parametrize(("n", "dtype", "moves"), [(4, F32, 4), (2, F32, 2), (8, F16, 4), (4, F16, 2), (2, F16, 1)])
def test_wide_accesses_are_requests_of_fewer_lanes(n: int, dtype: DType, moves: int) -> None:
    at = add(mul(T, index(n)), V)
    shared = only(counted(Phase((lanes(put("S", at, dtype), n),)), dtype=dtype))
    assert (shared.requests, shared.moves, shared.least) == (1, moves, moves)
    wide = only(counted(Phase((lanes(put("X", at, dtype), n),)), dtype=dtype))
    assert (wide.requests, wide.moves, wide.least) == (1, n * dtype.bytes, n * dtype.bytes)


def test_each_warp_each_iteration_and_each_block_is_a_request() -> None:
    body = Loop("r", index(0), index(3), LoopKind.SERIAL, (put("S", add(T, mul(R, index(80)))),))
    found = counted(Phase((body,)), threads=80, blocks=2)
    assert (found.blocks, only(found).requests, only(found).moves) == (2, 2 * 3 * 3, 2 * 3 * 3)


def test_lanes_that_skip_a_statement_meet_the_others_behind_it() -> None:
    some = If(Compare("<", T, index(8)), (put("X", T),))
    body = Phase((Loop("r", index(0), index(5), LoopKind.SERIAL, (some, put("S", T))),))
    first, second = counted(body).traffic
    assert (first.requests, first.moves, second.requests, second.moves) == (5, 5, 5, 5)


def test_barriers_are_counted() -> None:
    assert counted(Phase((put("S", T),)), Barrier(), Phase((put("S", T),)), Barrier()).barriers == 2
    assert counted(Phase((put("S", T),))).barriers == 0


def test_run_tells_what_moves_in_excess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    said = CliRunner().invoke(main, ["run", str(tmp_path / "t.tsched"), "t", "--emulate"])
    assert said.exit_code == 0
    assert re.search(
        r"counted, not timed +blocks +barriers +sectors of global memory +passes over shared memory\n", said.output
    )
    assert re.search(r"\nt_0 +\d+ +\d+ +\d+ \(\d+\.\d × the least\) +\d+ \(\d+\.\d × the least\)\n", said.output)
    found = re.search(
        r"`(\w+)` is (read|written) with (\S+) sectors a request, and (\S+) would do: block `\w+` in `", said.output
    )
    assert found is not None and float(found[3]) > float(found[4])


def test_tune_ranks_by_counts_and_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    t = task(tmp_path, "matmul(M=32, N=32, K=8)")
    command = [
        "tune",
        str(tmp_path / "t.tsched"),
        "t",
        "--emulate",
        "--trials",
        "3",
        "--output",
        str(tmp_path / "b.tsched"),
    ]
    said = CliRunner().invoke(main, command)
    assert said.exit_code == 0, said.output
    assert "by what the busiest of 108 multiprocessors moves: counts, not times" in said.stdout
    rows = re.findall(r"^(\d) +(\d+) +(\d+) +(\d+)$", said.stdout, re.MULTILINE)
    assert [int(r[1]) for r in rows] == sorted(int(r[1]) for r in rows)
    best = (tmp_path / "b.tsched").read_text()
    assert best.startswith(f"// t: counted in an emulation, never timed; seed 0, draw {rows[0][0]}\n")
    assert t.frozen(tmp_path / "b.tsched").text == t.sample(0, int(rows[0][0])).text
    assert t.emulate(t.frozen(tmp_path / "b.tsched")).busiest(108) == int(rows[0][1])
    assert not (tmp_path / "data").exists() or not list((tmp_path / "data").rglob("*.sqlite"))


@pytest.mark.parametrize("option", [["--budget", "1m"], ["--json"], ["--strategy", "bayes"], ["--records", "r"]])
def test_options_about_times_and_records_are_refused(option: list[str], tmp_path: Path) -> None:
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    said = CliRunner().invoke(main, ["tune", str(tmp_path / "t.tsched"), "t", "--emulate", *option])
    assert said.exit_code == 2 and f"`{option[0]}` is about times or records" in said.output


def test_a_kernel_of_a_cpu_is_not_ranked(tmp_path: Path) -> None:
    path = tmp_path / "c.tsched"
    path.write_text("use std.cpu\nuse std.ops.{matmul}\ntask t = matmul(M=8, N=8, K=8)\n")
    said = CliRunner().invoke(main, ["tune", str(path), "t", "--emulate", "--trials", "1"])
    assert said.exit_code == 1 and "E0920" in said.output
