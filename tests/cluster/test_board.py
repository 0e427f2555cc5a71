"""Searches on a board that has a shell alone, by an `ssh` that runs commands here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from campaigns.processors import PROCESSORS, missing
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Board, Task, load, loads
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.target import Target
from tensorc_dsl.proof.equivalence.bits import in_order
from tensorc_dsl.reference.inputs import extreme_inputs
from tensorc_dsl.tuning.cluster import ssh
from tensorc_dsl.tuning.cluster.board import KEPT, BoardRunner
from tensorc_dsl.tuning.cluster.ssh import Where
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import MOST, MachineChange, Outcome, Status
from tensorc_dsl.tuning.records.trial import worker_of
from tests.ahead.made import HERE
from tests.cluster.boards import FILE, FakeBoard, fake_board, faulty, needs_compiler
from tests.started import ALONE

pytestmark = needs_compiler

SMALL = "use std.cpu\nuse std.ops.{matmul}\ntask small = matmul(M=24, N=32, K=16)\n"


@pytest.fixture
def fake() -> Iterator[FakeBoard]:
    with fake_board() as found:
        yield found


@pytest.fixture
def board(fake: FakeBoard) -> Iterator[Board]:
    with Board("ssh://me@board") as found:
        yield found
    assert fake.left() == []


def sums() -> Task:
    return loads(FILE, threads=1)["sums"]


# What an address is, and who answers.


def test_addresses_are_those_of_ssh() -> None:
    found = Where.of("ssh://pi@10.0.0.7:2222/data/local/tmp")
    assert (found.host, found.port, found.folder) == ("pi@10.0.0.7", "2222", "/data/local/tmp")
    assert Where.of("ssh://board").command == "ssh board"
    assert Where.of("ssh://pi@[fe80::1]:22").command == "ssh -p 22 pi@fe80::1"
    for wrong in ("ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://a:b", "ssh://a@-b", "ssh://a;b", "ssh://a?b"):
        with pytest.raises(TschedError, match="E0872"):
            Where.of(wrong)


def test_a_board_that_does_not_answer(fake: FakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.put("down")
    refused = r"E0882.*ssh://board:22`: ssh: connect to host board port 22: Connection refused"
    with pytest.raises(TschedError, match=refused), Board("ssh://board:22"):
        pass
    monkeypatch.setenv("PATH", str(fake.folder / "bin"))
    with pytest.raises(TschedError, match=r"E0882.*no program `ssh`"), Board("ssh://board"):
        pass


def test_a_board_that_runs_no_programs_says_so_before_a_search(board: Board, fake: FakeBoard) -> None:
    task = sums()
    board.require(task.target, task.name)
    fake.put("bin/chmod", "#!/bin/sh\n")
    with pytest.raises(TschedError, match=r"E0883.*`board7`.*Permission denied"):
        board.require(task.target, task.name)
    fake.put("bin/cat", "#!/bin/sh\necho 'cat: write error: No space left on device' >&2; exit 1\n")
    with pytest.raises(TschedError, match=r"E0883.*No space left on device"):
        board.require(task.target, task.name)
    (fake.folder / "bin" / "cat").unlink()
    with pytest.raises(TschedError, match=r"E0883.*no programs of one file.*`cuda`"):
        board.require(Target(kind="cuda", cpu="sm_90"), "sums")


def test_a_folder_may_be_named(fake: FakeBoard, tmp_path: Path) -> None:
    with Board(f"ssh://board{tmp_path}") as board:
        assert Path(board.folder).parent == tmp_path
    assert [*tmp_path.iterdir()] == [] == fake.left()


# One kernel.


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("none", Status.OK, ""),
        ("wrong", Status.WRONG_RESULT, "C[5] is"),
        ("forgets", Status.WRONG_RESULT, "C[36] is nan"),
        ("just after", Status.WRONG_RESULT, "it writes outside of C"),
        ("just before", Status.WRONG_RESULT, "it writes outside of C"),
        ("reads far after", Status.CRASH, "SIGSEGV"),
        ("changes an input", Status.CRASH, "SIGSEGV"),
        ("dies", Status.CRASH, "SIGABRT"),
        ("divides", Status.CRASH, "SIGILL"),
        ("hangs", Status.TIMEOUT, "running takes more than 1 s"),
        ("no memory", Status.CRASH, "there is no memory for intermediate results"),
        ("only once", Status.WRONG_RESULT, "runs, C[3] is"),
    ],
)
def test_a_fault_is_recorded_as_what_it_is(
    board: Board, tmp_path: Path, fault: str, status: Status, message: str
) -> None:
    task = sums()
    limit = 1.0 if status is Status.TIMEOUT else 60.0
    with BoardRunner(task.program, task.target, board, threads=1, run_seconds=limit) as runner:
        found = runner.run(faulty(fault, tmp_path), None)
    assert (found.status, found.machine) == (status, "board7"), found.message
    assert message in found.message
    if status is Status.OK:
        assert 1 <= len(found.times) <= MOST and found.seconds is not None and found.max_error is not None
        assert min(found.times) <= found.seconds <= max(found.times)


def test_a_loser_is_timed_for_a_moment(board: Board, tmp_path: Path) -> None:
    """A call takes two milliseconds at least, however fast the machine is: more than five are longer than the moment."""
    task = sums()
    with BoardRunner(task.program, task.target, board, threads=1) as runner:
        built = faulty("sleeps", tmp_path)
        plain, slower, far, equal = (runner.run(built, best) for best in (None, 1e-3, 1e-4, 1.0))
    assert not plain.censored and not equal.censored
    assert slower.censored and 1 <= len(slower.times) <= 5
    assert far.censored and len(far.times) == 1


def test_a_slow_first_call_says_little_of_a_short_kernel(board: Board, tmp_path: Path) -> None:
    """Its code is not in a cache yet, or other work interrupts it."""
    task = sums()
    with BoardRunner(task.program, task.target, board, threads=1) as runner:
        built = faulty("late twice", tmp_path)
        # The first call takes more than 15 times the best one's time, the third one less than that. Other work may make
        # the first one longer than the two milliseconds of a short kernel.
        alike = (runner.run(built, 15e-6) for _ in range(20))
        assert any(not a.censored and len(a.times) > 1 for a in alike)


KINDS = """
compute strided(X: f32[M, N] strides [40, 1]) -> Y: f32[M, N] strides [50, 1] { Y[i, j] = X[i, j] * 2.0 }
schedule plain for strided {}
compute grown(X: f32[N], Y: f32[N]) -> Z: f32[N] updates Y { Z[i] = Y[i] + X[i] }
schedule serial for grown {}
compute scanned(X: f32[T], A: f32[T]) -> Y: f32[T] { Y[t] = scan[t] init X[0] step A[t] * Y[t - 1] + X[t] }
schedule in_order for scanned {}
task rows = strided(M=3, N=29) with plain
task update = grown(N=31) with serial
task scan = scanned(T=65) with in_order
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name", ["mm", "mm_any", "positive", "byte_product", "bf16_twice", "paired", "weighted", "scale"]
)
def test_kernels_of_all_kinds_are_right_as_they_are_here(name: str, board: Board) -> None:
    same_as_here(load(HERE / "tasks.tsched", threads=2)[name], board)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["rows", "update", "scan"])
def test_strides_updates_and_scans_are_right_as_they_are_here(name: str, board: Board) -> None:
    task = loads(KINDS, threads=1)[name]
    assert (extreme_inputs(task.program, 0) is not None) == (name == "scan")
    same_as_here(task, board)


def same_as_here(task: Task, board: Board) -> None:
    program = task.sample(0).program
    with LocalRunner(task.program, task.target, threads=task.threads, builders=1) as local:
        (here,) = local.measure([program], None)
    with BoardRunner(task.program, task.target, board, threads=task.threads) as runner:
        (there,) = runner.measure([program], None)
    assert isinstance(there, Outcome)
    assert (there.status, there.max_error, len(there.at)) == (here.status, here.max_error, len(here.at)), there.message
    assert there.compared == here.compared
    assert there.status is Status.OK


def test_bits_are_those_of_a_kernel_on_the_board(board: Board) -> None:
    task = loads(SMALL, threads=1)["small"]
    steps = "let [i, j, k] = C.loops\nlet [k0, k1] = split(k, [_, 8])\nreorder(i, j, k1, k0)"
    other = task.expand(Source("other", f"schedule other for matmul {{\n{steps}\n}}")).program
    own = in_order(task.program)
    with BoardRunner(task.program, task.target, board, threads=1, bits_of=own) as runner:
        right, wrong = runner.measure([own, other], None)
    assert isinstance(right, Outcome) and right.status is Status.OK, right
    assert isinstance(wrong, Outcome) and wrong.status is Status.WRONG_RESULT, wrong
    assert "has the bits" in wrong.message


def test_programs_stay_for_another_run_and_the_oldest_go(board: Board, fake: FakeBoard) -> None:
    task = sums()
    with BoardRunner(task.program, task.target, board, threads=1) as runner:
        program = task.sample(0).program
        assert len([*runner.measure([program], None)]) == 1
        sent = len(fake.calls())
        runner.again(program)
        assert len(fake.calls()) == sent + 1 and " cat > t1_" not in fake.calls()[-1]
        for n in range(KEPT + 3):
            name = f"{n:024d}"
            runner._files[f"t1_{name}"] = None
            (Path(board.folder) / f"t1_{name}").touch()
        runner.run(faulty("none", fake.folder), None)
        there = [p.name for p in Path(board.folder).iterdir()]
        assert len(runner._files) == KEPT == len([n for n in there if n.startswith("t1_") and "in" not in n])


# A search.


def test_a_search_on_a_board(board: Board, tmp_path: Path) -> None:
    records, task = tmp_path / "r.sqlite", loads(SMALL, threads=1)["small"]
    result = task.search(trials=3, seed=3, strategy="random", on=board, records=records)
    assert result.trials == 3 and result.best is not None and result.best_seconds
    assert {o.machine for o in result.outcomes} == {"board7"}
    assert all(len(o.times) >= 1 for o in result.outcomes if o.seconds)
    assert len(result.finalists) >= 2
    with closing(sqlite3.connect(records)) as connection:
        facts = [row[0] for row in connection.execute("SELECT facts FROM targets")]
    assert "board7" in {worker_of(f) for f in facts}
    again = task.search(trials=3, seed=3, strategy="random", on=board, records=records, resume=True)
    assert [t.text for t in again.traces] == [t.text for t in result.traces]


def test_a_connection_that_is_lost_for_a_while_costs_no_trial(
    board: Board, fake: FakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, waits = list[MachineChange](), list[float]()
    task = sums()

    def waited(seconds: float) -> None:
        """The board is there at the third look."""
        waits.append(seconds)
        if len(waits) == 2:
            down.unlink()

    monkeypatch.setattr(ssh, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waited))
    with BoardRunner(task.program, task.target, board, threads=1, told=changes.append) as runner:
        assert len([*runner.measure([task.sample(0).program], None)]) == 1
        down = fake.put("down")
        found = runner.again(task.sample(0).program)
    assert found.status is Status.OK
    assert [c.change for c in changes] == ["joined", "left", "joined"] and waits == [ssh.AGAIN_SECONDS] * 2
    assert "Connection refused" in changes[1].why


def test_a_file_of_which_a_part_arrives_is_sent_again(board: Board, fake: FakeBoard) -> None:
    changes: list[MachineChange] = []
    task = sums()
    part = f"#!/bin/sh\n[ $# -gt 0 ] && exec /bin/cat $*\nrm {fake.folder}/bin/cat\nhead -c 1000; exec /bin/cat > /dev/null\n"
    with BoardRunner(task.program, task.target, board, threads=1, told=changes.append) as runner:
        assert len([*runner.measure([task.sample(0).program], None)]) == 1
        fake.put("bin/cat", part)
        found = runner.run(faulty("none", fake.folder), None)
    assert found.status is Status.OK
    assert [c.why for c in changes if c.change == "left"] == ["a part of a file did not arrive"]


def test_a_connection_that_does_not_come_back_ends_the_search(
    board: Board, fake: FakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "AGAIN_SECONDS", 0.1)
    task = sums()
    with BoardRunner(task.program, task.target, board, threads=1, patience=0.3) as runner:
        assert len([*runner.measure([task.sample(0).program], None)]) == 1
        fake.put("down")
        with pytest.raises(TschedError, match=r"E0884.*`board7` broke.*within 0.3 s.*Connection refused"):
            runner.again(task.sample(0).program)
    (fake.folder / "down").unlink()


def test_another_board_behind_the_address_is_none(board: Board, fake: FakeBoard) -> None:
    fake.put("bin/uname", "#!/bin/sh\necho board8\n")
    with pytest.raises(TschedError, match=r"E0884.*another machine answers, `board8`"):
        board.reopen("", 5.0, lambda _: None)


def test_a_kernel_during_which_the_connection_always_breaks_is_a_crash(
    board: Board, fake: FakeBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_RAN", str(fake.folder / "ran"))
    fake.put("breaks")
    task = sums()
    with BoardRunner(task.program, task.target, board, threads=1) as runner:
        found = runner.run(faulty("breaks the line", tmp_path), None)
        assert (found.status, found.message) == (Status.CRASH, "the connection to the board broke 3 times while it ran")
        (good,) = runner.measure([task.sample(0).program], None)
    assert isinstance(good, Outcome) and good.status is Status.OK


# The command.


def searching(folder: Path, *more: str) -> list[str]:
    """The arguments of a search on the board; its file is in the folder."""
    (folder / "small.tsched").write_text(SMALL, encoding="utf-8")
    command = ["tune", "small.tsched", "small", "--on", "ssh://board", "--threads", "1", "--records", "r.sqlite"]
    return [*command, "--no-shipped", "--strategy", "random", *more]


def started(folder: Path, fake: FakeBoard, *more: str) -> subprocess.Popen[str]:
    code = f"{ALONE}import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from tensorc_dsl.faces.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *searching(folder, *more)],
        cwd=folder, env=os.environ | fake.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_the_command_says_that_no_roof_is_measured(
    tmp_path: Path, fake: FakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, searching(tmp_path, "--trials", "2"))
    assert done.exit_code == 0, done.stderr
    assert "no roof is measured on a board" in done.stdout and "trials by machine: 2 on board7" in done.stdout
    assert "1 worker: board7" in done.stderr
    assert (tmp_path / "small.best.tsched").exists() and fake.left() == []
    again = CliRunner().invoke(main, searching(tmp_path, "--trials", "2", "--json", "--seed", "1"))
    found = json.loads(again.stdout)
    assert (found["peak"], found["of_bound"], found["machines"]) == (None, None, {"board7": 2})
    assert found["gflops"] > 0 and fake.left() == []
    assert "comparing the best one with the one in its file" in again.stderr


@pytest.mark.corpus
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_search_that_ends_early_leaves_nothing_on_the_board(
    tmp_path: Path, fake: FakeBoard, number: signal.Signals
) -> None:
    with started(tmp_path, fake, "--trials", "1000", "--json-lines") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if '"event": "trial"' in line or '"measured"' in line:
                break
        assert fake.left() != []
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    until = time.monotonic() + 60
    while fake.left() and time.monotonic() < until:
        time.sleep(0.05)
    assert fake.left() == []
    if number is not signal.SIGKILL:
        assert process.returncode == 128 + number, err
        assert "interrupted; the trials so far are recorded" in err
        assert json.loads(out.splitlines()[-1])["event"] == "result"


EMULATED = PROCESSORS["cortex-a72"]


@pytest.mark.skipif(missing(EMULATED) != "", reason=f"not installed: {missing(EMULATED)}")
def test_a_board_of_another_instruction_set_under_qemu(fake: FakeBoard, tmp_path: Path) -> None:
    text = fake.program.read_text("utf-8")
    runs = 'sh -c "$(printf %s "$1" | sed "s#[.]/#qemu-aarch64 ./#g")"'
    assert 'sh -c "$1"' in text
    fake.program.write_text(text.replace('sh -c "$1"', runs), encoding="utf-8")
    task = loads(f"target machine = llvm({EMULATED.target})\n{SMALL}", target="machine")["small"]
    with Board("ssh://board") as board:
        result = task.search(trials=4, on=board, records=tmp_path / "r.sqlite")
    assert shutil.which("qemu-aarch64") and result.statuses == {"ok": 4}
