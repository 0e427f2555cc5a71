"""The command line: output, streams, and exit status."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import load, searching
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import Invalid, Report, Unproved
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tests.started import ALONE

SMALL = """\
/// C = A · B
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

task small = matmul(M=32, N=48, K=20) with tiled
task endless = matmul(M=32, N=48, K=20) with numbered
task stuck = matmul(M=32, N=48, K=20) with never

schedule tiled for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2, max_innermost=8)
    let columns ~ sample_perfect_tile(j, parts=2, max_innermost=16)
    let [i0, i1] = split(i, rows)
    let [j0, j1] = split(j, columns)
    let depth ~ sample_perfect_tile(k, parts=2)
    let [k0, k1] = split(k, depth)
    reorder(i0, j0, k0, k1, i1, j1)
    vectorize(j1)
}

schedule numbered for matmul {
    let number ~ sample_int(0..1000000)
    annotate(root, "number", number)
}

schedule never for matmul {
    let [i, j, k] = C.loops
    vectorize(k)
}
"""

COMMAND = f"""\
import signal; signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are deaf to it
{ALONE}from tensorc_dsl.faces.cli.main import main; main()
"""

ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with the file; nothing outside of it is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    (tmp_path / "small.tsched").write_text(SMALL, encoding="utf-8")
    return tmp_path


def call(*arguments: str, text: str | None = None) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, arguments, input=text)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process and a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder, env={**ENVIRONMENT, "XDG_DATA_HOME": str(folder / "data")}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def rows(database: Path) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT status, seed, task FROM trials WHERE phase = 'trial'").fetchall()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("check", "small.tsched", "missing.tsched"), 1, "E0901"),
        (("check",), 2, "Missing argument"),
        (("tuna",), 2, "No such command 'tuna'"),
        (("sample", "small.tsched", "small", "--seed", "-1"), 2, "--seed"),
        (("sample", "small.tsched", "small", "--threads", "0"), 2, "--threads"),
        (("tune", "small.tsched", "small", "--strategy", "luck"), 2, "there is no strategy 'luck'"),
        (("show", "small.tsched", "small", "--stage", "wasm"), 2, "--stage"),
        (("sample", "small.tsched", "smal"), 1, "did you mean `small`?"),
        (("show", "small.tsched", "matmull", "--stage", "ast"), 1, "did you mean `matmul`?"),
        (("run", "small.tsched", "x"), 1, "it has `small`, `endless`, `stuck`"),
        (("replay", "small.tsched", "small", "none.tsched"), 1, "E0901"),
        (("sample", "small.tsched", "stuck"), 1, "<- this loop"),
        (("tune", "small.tsched", "small", "--output", "no/where.tsched"), 1, "E0903"),
        (("tune", "small.tsched", "small", "--records", "small.tsched/x"), 1, "E0703"),
        (("tune", "small.tsched", "small", "--records", "small.tsched"), 1, "E0702"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_on_standard_error(
    folder: Path, arguments: Sequence[str], status: int, said: str
) -> None:
    result = call(*arguments)
    assert (result.exit_code, said in result.stderr) == (status, True), result.output
    assert "Traceback" not in result.output
    assert (folder / "small.tsched").read_text(encoding="utf-8") == SMALL


def test_check_reports_all_findings_of_all_files(folder: Path) -> None:
    Path("good.tsched").write_text(SMALL.replace("task stuck = matmul(M=32, N=48, K=20) with never\n", ""))
    Path("bad.tsched").write_text("task t = matmull(M=1)\ncompute c(")
    result = call("check", "good.tsched", "bad.tsched", "small.tsched", "--expand")
    assert result.exit_code == 1
    assert result.stdout == "good.tsched: ok, 2 tasks\n"
    assert "bad.tsched:" in result.stderr
    assert "small.tsched:" in result.stderr
    assert call("check", "good.tsched").exit_code == 0


def test_a_dash_is_standard_input(folder: Path) -> None:
    from_file = call("sample", "small.tsched", "small")
    assert from_file.exit_code == 0
    assert call("sample", "-", "small", text=SMALL).stdout == from_file.stdout
    result = call("check", "-", text="compute")
    assert result.exit_code == 1
    assert "--> <stdin>:1:" in result.stderr


def test_colour_is_for_terminals_and_for_who_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = ("check", "missing.tsched")
    assert "\x1b[" not in call(*bad).stderr
    assert "\x1b[" in call(*bad, "--color", "always").stderr
    assert "\x1b[" in call("--color", "always", *bad).stderr
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in call(*bad).stderr
    assert "\x1b[" in call(*bad, "--color", "always").stderr
    assert "\x1b[" not in call("--color", "always", *bad, "--color", "never").stderr


@pytest.mark.parametrize(("term", "coloured"), [("xterm", True), ("dumb", False), ("unknown", False)])
def test_a_terminal_without_colours_has_none(folder: Path, term: str, coloured: bool) -> None:
    terminal, end = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": term}
    command = [sys.executable, "-c", COMMAND, "check", "missing.tsched"]
    done = subprocess.run(command, check=False, stdin=end, stderr=end, env=environment)
    os.close(end)
    said = os.read(terminal, 4096).decode()
    os.close(terminal)
    assert done.returncode == 1 and "E0901" in said
    assert ("\x1b[" in said) == coloured


@pytest.mark.parametrize(("colours", "theme"), [("0;15", "ansi_light"), ("15;0", "ansi_dark"), ("", "ansi_dark")])
def test_a_page_has_the_colours_of_the_background(
    folder: Path, monkeypatch: pytest.MonkeyPatch, colours: str, theme: str
) -> None:
    monkeypatch.setenv("COLORFGBG", colours)
    made = call("explain", "E0312", "--color", "always").stdout
    bright = "\x1b[94m" in made  # the keywords
    assert bright == (theme == "ansi_dark")
    assert ";40m" not in made


def test_sample_is_a_function_of_seed_and_number(folder: Path) -> None:
    three = call("sample", "small.tsched", "small", "--seed", "5", "-n", "3").stdout
    assert three == call("sample", "small.tsched", "small", "--seed", "5", "-n", "3").stdout
    assert three.startswith(call("sample", "small.tsched", "small", "--seed", "5").stdout)
    assert three.count("schedule tiled for matmul {") == 3
    assert three != call("sample", "small.tsched", "small", "--seed", "6", "-n", "3").stdout


def test_show_every_stage(folder: Path) -> None:
    def show(stage: str, *more: str) -> str:
        result = call("show", "small.tsched", "small", "--stage", stage, *more)
        assert result.exit_code == 0, result.output
        return result.stdout

    for scheduled in ((), ("--scheduled",)):
        text = show("ir", *scheduled)
        assert format_program(parse_program(Source("ir", text))) == text
    assert show("trace", "--seed", "3") == call("sample", "small.tsched", "small", "--seed", "3").stdout
    assert "TaskDef name='small'" in show("ast")
    assert "vector" in show("lowered")
    assert "define void @tensorc_" in show("llvm")
    assert "tensorc_" in show("asm")
    Path("t.tsched").write_text(show("trace", "--seed", "3"))
    assert show("ir", "--scheduled", "--replay", "t.tsched") == show("ir", "--scheduled", "--seed", "3")


@pytest.mark.parametrize("stage", ["ir", "ast"])
@pytest.mark.parametrize("option", ["--condition=nobody=3", "--block=nobody", "--replay=nowhere.tsched"])
def test_show_does_not_ignore_what_decides_a_schedule(folder: Path, stage: str, option: str) -> None:
    result = call("show", "small.tsched", "small", "--stage", stage, option)
    assert result.exit_code == 2
    assert f"`--stage {stage}` shows what is before it: use `--stage ir --scheduled`" in result.stderr


def test_tune_says_what_it_found_as_one_object(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    result = call("tune", "small.tsched", "small", "--trials", "4", "--seed", "3", "--threads", "1", "--json")
    out, err = result.stdout, result.stderr
    assert result.exit_code == 0, err
    said = json.loads(out)
    assert out.count("\n") == 1
    wanted = "task trials statuses best_seconds gflops peak_gflops elapsed_seconds seed best_file"
    assert set(wanted.split()) <= set(said)
    assert (said["task"], said["trials"], said["seed"], said["threads"]) == ("small", 4, 3, 1)
    assert said["statuses"] == {"ok": 4}
    assert said["gflops"] > 0 and said["peak_gflops"] > 0
    assert said["gflops"] * said["best_seconds"] * 1e9 == pytest.approx(2 * 32 * 48 * 20)
    assert said["best_file"] == "small.best.tsched"
    assert err.startswith("reading small.tsched\n")
    assert "[4/4] best " in err
    assert "\x1b[" not in err
    assert len(rows(folder / "data" / "tensorc-dsl" / "records.sqlite")) == 4

    result = call("replay", "small.tsched", "small", "small.best.tsched", "--threads", "1")
    assert result.exit_code == 0, result.output
    assert "the result is right" in result.stdout
    # The frozen file pins every draw: its expansion is itself.
    trace = call("show", "small.tsched", "small", "--stage", "trace", "--replay", "small.best.tsched").stdout
    body = Path("small.best.tsched").read_text().split("\n\n")
    assert trace == body[1] + "\n"
    assert body[0].endswith("\nuse small.{matmul}") and body[2].startswith("task small = matmul(")
    assert "no recorded schedule" not in call("run", "small.tsched", "small", "--threads", "1").stderr


def test_tune_ends_in_a_table(folder: Path) -> None:
    result = call("tune", "small.tsched", "small", "--trials", "2", "--strategy", "random", "--output", "b.tsched")
    assert result.exit_code == 0, result.output
    head, _, table = result.stdout.partition("\n\n")
    assert head.startswith("small on ")
    assert [line.split("  ")[0] for line in table.splitlines()[:4]] == ["", "tensorc-dsl", "NumPy", "f32 FMA peak"]
    assert "2 trials in " in table
    assert table.endswith("best schedule: b.tsched\n")


def test_run_without_a_record_draws_a_schedule(folder: Path) -> None:
    result = call("run", "small.tsched", "small")
    assert result.exit_code == 0, result.output
    assert "no recorded schedule" in result.stderr
    assert not (folder / "data").exists()


def test_no_valid_candidate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_self: object, programs: Sequence[Program], _best: float | None) -> Iterator[Outcome]:
        yield from (Outcome(Status.CRASH, message="signal 11") for _ in programs)

    monkeypatch.setattr(LocalRunner, "measure", crash)
    result = call("tune", "small.tsched", "small", "--trials", "3", "--json")
    assert result.exit_code == 3
    said = json.loads(result.stdout)
    assert "3 × crash: signal 11" in result.stderr
    assert (said["statuses"], said["best_seconds"], said["best_file"]) == ({"crash": 3}, None, None)
    assert not Path("small.best.tsched").exists()
    result = call("replay", "small.tsched", "small", "-", text=call("sample", "small.tsched", "small").stdout)
    assert result.exit_code == 1
    assert "E0908" in result.stderr
    assert "signal 11" in result.stderr


def test_a_disk_that_fills_up_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("small.best.tsched").write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    result = call("tune", "small.tsched", "small", "--trials", "2", "--json")
    assert result.exit_code == 1
    assert "E0904" in result.stderr
    assert json.loads(result.stdout)["best_file"] is None
    assert Path("small.best.tsched").read_text() == "before"
    assert "no recorded schedule" not in call("run", "small.tsched", "small").stderr


def test_a_space_where_nothing_applies(folder: Path) -> None:
    result = call("tune", "small.tsched", "stuck", "--trials", "3")
    assert result.exit_code == 3
    assert "<- this loop" in result.stderr


def test_verify_names_the_assumptions_it_stands_on(folder: Path) -> None:
    Path("sums.tsched").write_text(
        "use std.ops.logsumexp.{log_sum_exp}\ntask rows = log_sum_exp(M=2, N=8)\n"
        "schedule parts for log_sum_exp { let [i, j] = Y.loops; let [j0, j1] = split(j, [2, _]); rfactor(Y, j0) }\n"
    )
    assert call("verify", "sums.tsched", "rows").stdout == "rows: valid if `logsumexp` is associative\n"
    assert json.loads(call("verify", "sums.tsched", "rows", "--output-format", "json").stdout)["results"] == [
        {"file": "sums.tsched", "what": "rows", "result": "valid", "assumes": ["`logsumexp` is associative"]}
    ]


def test_check_and_show_name_what_schedules_assume(folder: Path) -> None:
    parts = "schedule parts for log_sum_exp { let [i, j] = Y.loops; let [j0, j1] = split(j, [2, _]); rfactor(Y, j0) }\n"
    Path("sums.tsched").write_text(f"use std.ops.logsumexp.{{log_sum_exp}}\ntask rows = log_sum_exp(M=2, N=8)\n{parts}")
    assert call("check", "sums.tsched").stdout == (
        "sums.tsched: ok, 1 task\nsums.tsched: schedules of `rows` assume that `logsumexp` is associative\n"
    )
    line = "// assumed: `logsumexp` is associative\n"
    for args in (("ir",), ("ir", "--scheduled"), ("space",), ("trace",)):
        assert call("show", "sums.tsched", "rows", "--stage", *args).stdout.startswith(line)
    Path("again.tsched").write_text(call("show", "sums.tsched", "rows", "--stage", "trace").stdout)
    assert call("verify", "sums.tsched", "rows", "again.tsched").exit_code == 0
    assert "assum" not in call("check", "small.tsched").stdout + call("show", "small.tsched", "small").stdout


def test_run_and_replay_say_which_sizes_an_open_dimension_took(folder: Path) -> None:
    Path("open.tsched").write_text(
        "compute twice(X: f32[N]) -> Y: f32[N] { Y[i] = X[i] + X[i] }\n"
        "schedule plain for twice { let [i] = Y.loops }\ntask t = twice(N=1..64 at [3, 17]) with plain\n"
    )
    Path("t.trace.tsched").write_text(call("sample", "open.tsched").stdout)
    for args in (("run", "open.tsched"), ("replay", "open.tsched", "t.trace.tsched")):
        assert "timed at N = 3, 17; checked at N = 1, " in call(*args, "--threads", "1").stdout
    assert "checked at" not in call("run", "small.tsched", "small", "--threads", "1").stdout


def test_a_finalist_that_is_proved_wrong_is_a_bug(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second best, too: its time is in the database, where `run` would find it."""
    asked: list[str] = []

    def some_are_wrong(original: Program, scheduled: Program) -> Report:
        asked.append(str(original == scheduled))
        found = Diagnostic("E0801", "it computes something else", None)
        return Invalid(found) if len(asked) == wrong else Unproved(replace(found, code="E0807"))

    monkeypatch.setattr(searching, "validate", some_are_wrong)
    best: list[str] = []
    for wrong in (2, 1):
        asked.clear()
        result = call("tune", "small.tsched", "small", "--trials", "4", "--json", "--records", f"{wrong}.sqlite")
        assert result.exit_code == 4
        assert len(asked) > 2
        assert "a schedule is wrong: E0801: it computes something else" in result.stderr
        assert "tensorc-dsl verify small.tsched small small.wrong.tsched" in result.stderr
        told = json.loads(result.stdout)
        assert (told["verdict"], told["best_file"]) == ("unproved", "small.best.tsched")
        # What is refuted is not the best of the file, nor of the records.
        best.append(Path("small.best.tsched").read_text().split("\n", 2)[2])
        assert Path("small.wrong.tsched").read_text() != best[-1]
        found = load("small.tsched")["small"].recorded(Path(f"{wrong}.sqlite"))
        assert found is not None
        assert found.text != Path("small.wrong.tsched").read_text()
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert call("verify", "small.tsched", "small", "small.wrong.tsched").exit_code == 0


def test_a_bug_is_owned_up_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("the cat sat on it")

    monkeypatch.setattr("tensorc_dsl.faces.api.load", broken)
    result = call("sample", "small.tsched", "small")
    assert result.exit_code == 4
    assert "internal error: RuntimeError: the cat sat on it" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in call("sample", "small.tsched", "small", "--debug").stderr


def test_an_interrupted_search_keeps_its_records(folder: Path) -> None:
    process = start(
        folder, "tune", "small.tsched", "endless", "--trials", "100000", "--strategy", "random", "--records", "r.sqlite"
    )
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("["):
        assert line, "it ended before a trial did"
    # As a terminal does it: to the whole group, children included.
    os.killpg(process.pid, signal.SIGINT)
    status, _, err = finish(process)
    assert status == 130, err
    assert "Traceback" not in err
    assert len(rows(folder / "r.sqlite")) > 0
    assert Path("endless.best.tsched").read_text().startswith("// endless: ")


def test_two_searches_share_a_database(folder: Path) -> None:
    both = [
        start(folder, "tune", "small.tsched", "small", "--trials", "3", "--seed", str(seed), "--strategy", "random",
              "--records", "r.sqlite", "--output", f"{seed}.tsched", "--threads", "1", "--json")
        for seed in (1, 2)
    ]  # fmt: skip
    for status, out, err in map(finish, both):
        assert status == 0, err
        assert json.loads(out)["statuses"] == {"ok": 3}
    assert sorted(seed for _, seed, _ in rows(folder / "r.sqlite")) == [1] * 3 + [2] * 3


def test_a_reader_that_goes_away_is_no_bug(folder: Path) -> None:
    with start(folder, "sample", "small.tsched", "small", "-n", "100000") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 1
