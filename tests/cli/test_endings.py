"""The end of `tune` by signals and on a full disk: results are kept, and no process is left."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from campaigns.kills import alive, marked, wait_for
from tests.started import ALONE, MOMENT

FILE = """\
use std.ops.{matmul}

task endless = matmul(M=32, N=48, K=20) with numbered

schedule numbered for matmul {
    let number ~ sample_int(0..1000000)
    annotate(root, "number", number)
}
"""

COMMAND = """\
import resource, signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)
limit = int(sys.argv.pop(1)); limit and resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from tensorc_dsl.faces.cli import options
from tensorc_dsl.faces.cli.main import main
{moment}from tensorc_dsl.tuning.machine import baseline
{patched}
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f.tsched").write_text(FILE)
    return tmp_path


def start(
    folder: Path, *arguments: str, trials: int = 100_000, file_bytes: int = 0, patched: str = "", moment: str = ALONE
) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-c", COMMAND.format(patched=patched, moment=moment), str(file_bytes), "tune", "f.tsched", "endless",
        "--strategy", "random", "--trials", str(trials), "--threads", "1", "--records", "r.sqlite", *arguments,
    ]  # fmt: skip
    return subprocess.Popen(
        command, cwd=folder, env=marked(str(folder)), text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def rows(folder: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(folder / "r.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return connection.execute("SELECT trial, phase FROM trials ORDER BY id").fetchall()


def until(holds: Callable[[], bool]) -> None:
    assert wait_for(holds)


def hear(process: subprocess.Popen[str], word: str) -> None:
    """The process says it."""
    assert process.stderr is not None
    said = line = process.stderr.readline()
    while word not in line:
        assert line, said
        said += (line := process.stderr.readline())


PAUSING = """\
class Pause:
    @staticmethod
    def sleep(seconds):
        print("a pause", file=sys.stderr, flush=True)
        sys.stdin.readline()
options.time = Pause
"""
"""The tenth of a second in which further signals are part of the first one ends when the test says so."""


@pytest.mark.corpus("endings of searches")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_search_in_order(folder: Path, number: signal.Signals, status: int) -> None:
    """Twice at once, as `timeout` and others send it, is one wish."""
    process = start(folder, patched=PAUSING)
    hear(process, "[")
    os.killpg(process.pid, number)
    hear(process, "a pause")
    os.kill(process.pid, number)
    _, err = process.communicate("\n", timeout=120)
    assert process.returncode == status, err
    assert "interrupted; the trials so far are recorded" in err and "Traceback" not in err
    assert rows(folder)
    assert (folder / "endless.best.tsched").read_text().startswith("// endless: ")
    until(lambda: not alive(str(folder)))


@pytest.mark.corpus("endings of searches")
def test_a_signal_before_the_search_ends_it_with_the_same_status(folder: Path) -> None:
    process = start(folder, patched="baseline.roof_of = lambda *_: time.sleep(1000)")
    hear(process, "measuring what this machine can do")
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    assert err.strip().endswith("interrupted")
    until(lambda: not alive(str(folder)))


DROPPED = """\
import signal, sys, time
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.faces.cli.main import main
class Slow:
    def __del__(self):
        print("dropping", file=sys.stderr, flush=True)
        for _ in range(6000):
            time.sleep(0.01)
draws, batches = Explorer.draws, 0
def drawn(explorer, count):
    global batches
    batches += 1
    if batches == 3:
        Slow()
    return draws(explorer, count)
Explorer.draws = drawn
main()
"""


@pytest.mark.corpus("endings of searches")
def test_a_signal_in_a_destructor_ends_the_search_too(folder: Path) -> None:
    """Python drops what is raised there."""
    process = subprocess.Popen(
        [sys.executable, "-c", DROPPED, "tune", "f.tsched", "endless", "--strategy", "random", "--trials", "100000",
         "--threads", "1", "--records", "r.sqlite"],
        cwd=folder, env=marked(str(folder)), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        hear(process, "dropping")
        process.terminate()
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 143, err
    assert "Exception ignored" in err and "interrupted; the trials so far are recorded" in err
    assert (folder / "endless.best.tsched").exists()
    until(lambda: not alive(str(folder)))


HELD = """\
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from tensorc_dsl.faces.api import searching
def slow(program, scheduled):
    print("proof", file=sys.stderr, flush=True)
    time.sleep(1000)
searching.validate = slow
from tensorc_dsl.faces.cli.main import main; main()
"""


@pytest.fixture
def proving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A search whose end takes forever."""
    with subprocess.Popen(
        [sys.executable, "-c", HELD, "tune", "f.tsched", "endless", "--strategy", "random", "--trials", "2",
         "--records", "r.sqlite"],
        cwd=folder, env=marked(str(folder)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        hear(process, "proof")
        yield process


@pytest.mark.corpus("endings of searches")
def test_a_search_is_kept_when_its_proof_is_cut_short(folder: Path, proving: subprocess.Popen[str]) -> None:
    proving.send_signal(signal.SIGINT)
    _, err = proving.communicate(timeout=120)
    assert proving.returncode == 130, err
    assert (folder / "endless.best.tsched").exists()


STUCK = HELD.replace(
    """\
    print("proof", file=sys.stderr, flush=True)
    time.sleep(1000)""",
    """\
    try:
        print("proof", file=sys.stderr, flush=True)
        time.sleep(1000)
    finally:
        print("ending", file=sys.stderr, flush=True)
        time.sleep(1000)""",
)


@pytest.mark.corpus("endings of searches")
def test_a_second_interrupt_ends_at_once(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, "tune", "f.tsched", "endless", "--strategy", "random", "--trials", "2",
         "--records", "r.sqlite"],
        cwd=folder, env=marked(str(folder)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        for word in ("proof", "ending"):
            hear(process, word)
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    until(lambda: not alive(str(folder)))
    assert len(rows(folder)) >= 2


@pytest.mark.corpus("endings of searches")
def test_signals_that_were_ignored_stay_ignored(folder: Path) -> None:
    """As with `nohup`."""
    waits = HELD.replace("time.sleep(1000)", "sys.stdin.readline()")
    command = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{waits}"
    with subprocess.Popen(
        [sys.executable, "-c", command, "tune", "f.tsched", "endless", "--strategy", "random", "--trials", "3",
         "--records", "r.sqlite"],
        cwd=folder, env=marked(str(folder)), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        hear(process, "proof")
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate("\n" * 3, timeout=120)
        assert "interrupted" not in err and (folder / "endless.best.tsched").exists(), err


@pytest.mark.corpus("outputs that fail")
def test_a_disk_that_is_full_for_records_keeps_the_schedule_and_says_what_is_lost(folder: Path) -> None:
    process = start(folder, "--json", trials=24, file_bytes=128 << 10)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    said = json.loads(out)
    assert said["trials"] == 24 and (folder / said["best_file"]).read_text().startswith("// endless: ")
    kept, lost = rows(folder), said["unrecorded"]
    finals = 5
    # Where the machine drifts there are more: of what is measured again.
    assert 0 < len(kept) < 24 and len(kept) + lost >= 24 + finals
    assert "records wait, and are offered again with each trial: " in err and re.search(r"error\[E070[34]\]", err)
    first = sum(phase == "trial" for _, phase in kept) + 1
    assert re.search(
        rf"{lost} records could not be kept: trials {first} to 24, .*in the comparison at the end trial", err
    )


@pytest.mark.corpus("outputs that fail")
def test_where_both_disks_are_full_the_schedule_is_printed(folder: Path) -> None:
    process = start(folder, "--output", "/dev/full", trials=24, file_bytes=64 << 10)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert "error[E0904]" in err and "among the records" not in err
    assert "\nschedule numbered for matmul {\n" in err


@pytest.mark.corpus("outputs that fail")
def test_a_disk_that_is_full_for_the_schedule_keeps_the_records(folder: Path) -> None:
    process = start(folder, "--output", "/dev/full", trials=3)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert "error[E0904]: no room to write `/dev/full`" in err
    assert "the schedule is among the records" in err
    assert len([phase for _, phase in rows(folder) if phase == "trial"]) == 3


ENDLESS_NUMPY = """\
class Endless(baseline.Worker):
    def ask(self, question, seconds):
        self.ready()
        time.sleep(1000)
baseline.Worker = Endless
"""


@pytest.mark.corpus("endings of searches")
def test_a_signal_behind_the_search_keeps_what_was_found(folder: Path) -> None:
    """NumPy is timed then, for which the command need not wait."""
    process = start(folder, trials=2, patched=ENDLESS_NUMPY, moment=MOMENT)
    hear(process, "timing NumPy")
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    assert err.strip().endswith("interrupted; the trials so far are recorded")
    assert (folder / "endless.best.tsched").read_text().startswith("// endless: ")
    assert "2 trials in " in out and "NumPy" not in out
    until(lambda: not alive(str(folder)))


CLOSING = """\
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from tensorc_dsl.tuning.measure.local import LocalRunner
close = LocalRunner.close
def slow(self):
    close(self)
    print("closed", file=sys.stderr, flush=True)
    sys.stdin.readline()
LocalRunner.close = slow
from tensorc_dsl.faces.cli.main import main; main()
"""


@pytest.mark.corpus("endings of searches")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_between_the_search_and_what_follows_keeps_what_was_found(
    folder: Path, number: signal.Signals, status: int
) -> None:
    """Processes end then, which takes a while."""
    with subprocess.Popen(
        [sys.executable, "-c", CLOSING, "tune", "f.tsched", "endless", "--strategy", "random", "--trials", "2",
         "--records", "r.sqlite"],
        cwd=folder, env=marked(str(folder)), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        hear(process, "closed")
        process.send_signal(number)
        out, err = process.communicate("\n", timeout=120)
        assert process.returncode == status, err
    assert (folder / "endless.best.tsched").read_text().startswith("// endless: ")
    assert "2 trials in " in out and "timing NumPy" not in err
