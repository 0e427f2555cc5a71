"""What the accesses of a kernel cost: sectors of global memory, and passes over the banks of shared memory."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Barrier, Device, DeviceKernel, DeviceProgram, Phase, Shared
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import Counts, Traffic
from tensorc_dsl.faces.api import kernel
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.dtypes import F16, F32, DType
from tensorc_dsl.ir.expr import ONE, Compare, Const, Expr, Load, Var, add, floordiv, floormod, index, mul
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, Param
from tensorc_dsl.tuning.measure.emulation import Emulated
from tensorc_dsl.tuning.measure.outcome import Status
from tensorc_dsl.tuning.records.emulated_counts import Counted, Emulation, kept
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


def tuned(folder: Path, *more: str) -> Result:
    """`tune --emulate` of three draws of `t.tsched`, with records in the folder."""
    best = str(folder / "b.tsched")
    command = ["tune", str(folder / "t.tsched"), "t", "--emulate", "--trials", "3", "--output", best]
    return CliRunner().invoke(main, [*command, "--strategy", "random", "--records", str(folder / "r.sqlite"), *more])


@pytest.mark.corpus
def test_a_search_by_a_model_is_kept_apart_from_times(tmp_path: Path) -> None:
    t = task(tmp_path, "matmul(M=32, N=32, K=8)")
    said = tuned(tmp_path)
    assert said.exit_code == 0, said.output
    assert "t on sm_80: by the cycles of a model, not timed" in said.stdout and "\n3 trials in " in said.stdout
    # The search itself takes less than a second on a fast machine.
    told = re.sub(r"\n3 trials in [\d.]+ m?s\b", "", said.stdout, count=1) + said.stderr
    assert not re.search(r"\d (ns|µs|ms)\b", told) and "turns" not in said.stderr
    rows = re.findall(r"^(\d) +(\d+) +(\d+) +(\d+) +(\d+)$", said.stdout, re.MULTILINE)
    assert len(rows) == 3 and [int(r[1]) for r in rows] == sorted(int(r[1]) for r in rows)
    best = re.search(r"^trial (\d) is the best one:$", said.stdout, re.MULTILINE)
    assert best is not None and "verified: valid" in said.stdout
    text = (tmp_path / "b.tsched").read_text()
    row = next(r for r in rows if r[0] == best[1])
    head = (
        f"// t: {int(row[1]):,} cycles of the model, counted in an emulation, never timed; 3 trials, random, seed 0\n"
    )
    assert text.startswith(head) and "b.tsched --emulate\n" in text
    assert t.emulate(t.frozen(tmp_path / "b.tsched")).busiest(108) == int(row[2])
    assert not list(tmp_path.rglob("*.sqlite")) and len((tmp_path / "emulated.jsonl").read_bytes().splitlines()) == 3


@pytest.mark.corpus
def test_every_strategy_makes_cycles_small(tmp_path: Path) -> None:
    """The model that `bayes` begins with is the one that judges, so its first trial is as fast as the best of a few draws."""
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    drawn = json.loads(tuned(tmp_path, "--json").stdout)
    chosen = json.loads(tuned(tmp_path, "--strategy", "bayes", "--until", "50%", "--budget", "1m", "--json").stdout)
    assert chosen["strategy"] == "bayes" and chosen["best_cycles"] <= drawn["best_cycles"]


@pytest.mark.corpus
def test_the_faster_one_of_the_model_is_kept(tmp_path: Path) -> None:
    t = task(tmp_path, "matmul(M=32, N=32, K=8)")
    seen: list[float] = []
    for seed in range(4):
        facts = json.loads(tuned(tmp_path, "--seed", str(seed), "--trials", "1", "--json").stdout)
        here = facts["best_cycles"]
        assert facts["kept"] == any(before < here for before in seen)
        note = facts["best_note"]
        assert note is None or note.startswith("kept: " if facts["kept"] else "replaced: ")
        assert note is None or note.count("cycles of the model") == 2
        seen.append(here)
        held = t.frozen(tmp_path / "b.tsched")
        assert t.emulate(held, t.require_registers(held)).cycles == min(seen)
    assert len(set(seen)) > 1
    worst = str(max(range(4), key=seen.__getitem__))
    again = tuned(tmp_path, "--seed", worst, "--trials", "1", "--no-keep-better").stdout
    assert "\nreplaced: the file held another schedule for the task\n" in again


def steady(result: str) -> dict[str, object]:
    """What `--json` prints, but for the duration of the search."""
    return {k: v for k, v in json.loads(result).items() if k not in ("event", "elapsed_seconds")}


@pytest.mark.corpus
def test_events_of_an_emulated_search_are_lines_of_json(tmp_path: Path) -> None:
    """They are those of a search that times, with cycles in the place of seconds."""
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    lines = [json.loads(x) for x in tuned(tmp_path, "--json-lines").stdout.splitlines()]
    measured = [x for x in lines if x["event"] == "measured"]
    assert [x["event"] for x in lines[:2]] == ["started", "proposed"] and lines[-1]["event"] == "result"
    assert all(x["task"] == "t" for x in lines)
    assert not any("seconds" in x or "best_seconds" in x for x in measured)
    result = steady(tuned(tmp_path, "--json", "--resume").stdout)
    assert result == steady(json.dumps(lines[-1])) | {"recorded": 3}
    valid = json.loads(json.dumps(result["valid"]))
    assert {x["trial"]: x["cycles"] for x in valid} == {x["trial"]: round(x["cycles"]) for x in measured}
    assert list(valid[0]) == ["trial", "cycles", "moves", "sectors", "passes"]
    assert lines[-2]["event"] == "finished" and lines[-2]["best_cycles"] == result["best_cycles"]


Emulate = Callable[..., Emulated]


@pytest.fixture
def emulate() -> Emulate:
    return kernel.emulated


@pytest.mark.corpus
def test_what_was_counted_is_not_emulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulate: Emulate
) -> None:
    """A line that was cut off is no record; those of another seed are left."""
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    first = tuned(tmp_path, "--json")
    path = tmp_path / "emulated.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    calls: list[object] = []
    monkeypatch.setattr(kernel, "emulated", lambda *given: calls.append(given) or emulate(*given))
    again = tuned(tmp_path, "--resume", "--json")
    assert len(calls) == 1 and steady(again.stdout) == steady(first.stdout) | {"recorded": 2}
    assert "going on with the last search: 2 trials recorded" in again.stderr
    key = msgspec.json.decode(path.read_bytes().splitlines()[0], type=Emulation).search
    assert len(kept(path, key)) == 3
    other = tuned(tmp_path, "--resume", "--seed", "1")
    assert len(calls) == 5  # three draws, and the schedule that the file has from seed 0
    assert "it begins anew" in other.stderr


@pytest.mark.corpus
def test_the_best_of_a_resumed_search_is_not_lost(tmp_path: Path) -> None:
    """A search with fewer trials than it had takes the best recorded ones, too, as one that times does."""
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    first = steady(tuned(tmp_path, "--json").stdout)
    again = steady(tuned(tmp_path, "--json", "--resume", "--trials", "1").stdout)
    assert again["best_cycles"] == first["best_cycles"]


@pytest.mark.corpus
def test_a_signal_leaves_what_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulate: Emulate) -> None:
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    done = list[object]()

    def second(*given: object) -> Emulated:
        done.append(given)
        if len(done) == 2:
            signal.raise_signal(signal.SIGTERM)
        return emulate(*given)

    monkeypatch.setattr(kernel, "emulated", second)
    said = tuned(tmp_path, "--json")
    assert said.exit_code == 143 and "interrupted; the trials so far are recorded" in said.stderr
    result = json.loads(said.stdout)
    assert (len(result["valid"]), result["interrupted"], (tmp_path / "b.tsched").exists()) == (1, True, True)


@pytest.mark.corpus
def test_wrong_candidates_are_named_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulate: Emulate
) -> None:
    monkeypatch.chdir(tmp_path)
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    fault = Emulated(np.inf, "thread 0 and thread 1 meet")
    done = list[object]()
    monkeypatch.setattr(kernel, "emulated", lambda *x: fault if done.append(x) or len(done) == 2 else emulate(*x))
    said = tuned(tmp_path)
    assert said.exit_code == 4
    assert "t: trial 2 makes a kernel that is wrong: thread 0 and thread 1 meet\n" in said.stderr
    assert "t.wrong.tsched --emulate`" in said.stderr and (tmp_path / "b.tsched").exists()
    assert (tmp_path / "t.wrong.tsched").exists()
    assert json.loads(tuned(tmp_path, "--resume", "--json").stdout)["wrong"] == [2]


@pytest.mark.corpus
def test_a_schedule_without_a_kernel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task(tmp_path, "matmul(M=32, N=32, K=8)")

    def spilled(*_: object) -> Emulated:
        raise kernel.failed("spills registers", "8 bytes")

    monkeypatch.setattr(kernel, "emulated", spilled)
    assert "\n3 trials without a kernel: the schedule spills registers: 8 bytes\n" in tuned(tmp_path).stdout
    said = tuned(tmp_path, "--json")
    assert said.exit_code == 3 and "3 × refused: the schedule spills registers: 8 bytes" in said.stderr
    assert json.loads(said.stdout)["reasons"] == {"the schedule spills registers: 8 bytes": 3}


@pytest.mark.parametrize("cycles", [float("inf"), None])
def test_cycles_that_are_no_number_rank_nothing(cycles: float | None) -> None:
    """A kernel that no multiprocessor has room for is refused; without a model, what the busiest one moves is the figure."""
    traffic = (Traffic("S", "X", False, False, 1, 8, 8),)
    found = Counted.of(Emulated(0.0, counts=(Counts("k", 4, 0, traffic),), cycles=cycles)).outcome(2)
    assert found.seconds == (None if cycles else 4.0)
    assert found.status is (Status.REFUSED if cycles else Status.OK)


@pytest.mark.parametrize("option", [["--threads", "2"], ["--write-prior"]])
def test_options_about_times_are_refused(option: list[str], tmp_path: Path) -> None:
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    said = CliRunner().invoke(main, ["tune", str(tmp_path / "t.tsched"), "t", "--emulate", *option])
    assert said.exit_code == 2 and f"`{option[0]}` " in said.output and "`--emulate` counts" in said.output


def test_a_kernel_of_a_cpu_is_not_ranked(tmp_path: Path) -> None:
    path = tmp_path / "c.tsched"
    path.write_text("use std.cpu\nuse std.ops.{matmul}\ntask t = matmul(M=8, N=8, K=8)\n")
    said = CliRunner().invoke(main, ["tune", str(path), "t", "--emulate", "--trials", "1"])
    assert said.exit_code == 1 and "E0920" in said.output
