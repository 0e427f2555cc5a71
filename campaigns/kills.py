"""Kills `tune` at random moments, and checks that no process is left a second later, no reported trial is lost, and
`--resume` continues from the records and measures nothing twice.

    python -m campaigns.kills --count 50 --seed 1 --signal KILL

A moment is an observable event of the run (its start, the database, its first child, a builder, a line of progress, the
comparison at the end, NumPy's child) and a random delay after it.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil

from tensorc_dsl.base.outputs import Output
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial

SECONDS = 1.0
"""The seconds for which processes may live after the kill."""

PATIENCE = 120.0
"""The time limit for an event to be observed, in seconds."""

MARK = "TENSORC_MARK"

FILE = """\
use std.cpu
use std.ops.{matmul}

task product = matmul(M=96, N=96, K=96)
"""

KEPT = {
    "tensorc-dsl",
    "f.tsched",
    "r.sqlite",
    "r.sqlite-wal",
    "r.sqlite-shm",
    "r.sqlite.lock",
    "best.tsched",
    "out",
    "err",
    "tmp",
}
"""The files that may be in the folder afterwards: SQLite's are consumed when the database is opened next."""


def marked(mark: str) -> dict[str, str]:
    """The environment of a run, by which its processes are found even when their parent is gone."""
    return {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")} | {MARK: mark}


def alive(mark: str) -> list[psutil.Process]:
    """The processes with the mark that run."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@dataclass(frozen=True, slots=True)
class Run:
    """A `tune` that is to be ended, in a folder of its own."""

    folder: Path
    process: subprocess.Popen[bytes]

    @staticmethod
    def start(folder: Path, trials: int, *more: str) -> Run:
        (folder / "tmp").mkdir(exist_ok=True)
        (folder / "f.tsched").write_text(FILE)
        code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        code += "from tensorc_dsl.faces.cli.main import main; main()"
        command = [sys.executable, "-c", code, "tune", "f.tsched", "product", "--strategy", "random",
                   "--trials", str(trials), "--threads", "1", "--records", "r.sqlite", "--output", "best.tsched",
                   *more]  # fmt: skip
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            environment = marked(str(folder)) | {"TMPDIR": str(folder / "tmp"), "XDG_RUNTIME_DIR": str(folder)}
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )
        return Run(folder, process)

    @property
    def said(self) -> str:
        return (self.folder / "err").read_text()

    def told(self) -> int:
        """The number of trials that the run has reported as measured."""
        return max((int(n) for n in re.findall(r"^\[(\d+)/", self.said, re.MULTILINE)), default=0)

    def children(self) -> list[str]:
        """Name and command line of each; one of the fork server has the server's command line."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [" ".join([p.name(), *p.cmdline()]) for p in children]

    def has_child(self, word: str) -> bool:
        try:
            return any(word in line for line in self.children())
        except psutil.NoSuchProcess:
            return False

    def records(self) -> int:
        """The number of trials in the database, whose integrity is checked."""
        path = self.folder / "r.sqlite"
        if not path.exists() or not path.stat().st_size:
            return 0
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise AssertionError("the database is damaged")
            tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'trials'").fetchone()[0]
            return connection.execute("SELECT count(*) FROM trials").fetchone()[0] if tables else 0


@dataclass(frozen=True, slots=True)
class Moment:
    """An observable event of a search with this number of trials."""

    seen: Callable[[Run], bool]
    trials: int = 100_000


FEW = 4
"""The number of trials of a search that is to reach its end."""

MOMENTS = {
    "start": Moment(lambda run: run.process.pid > 0),
    "the database": Moment(lambda run: (run.folder / "r.sqlite-wal").exists()),
    "a child": Moment(lambda run: run.has_child("")),
    "a builder": Moment(lambda run: run.has_child("builder")),
    "progress": Moment(lambda run: run.told() > 0),
    "the comparison": Moment(lambda run: "comparing the best" in run.said, FEW),
    "NumPy": Moment(lambda run: run.has_child("tensorc_dsl.tuning.machine.baseline"), FEW),
}


def wait_for(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether it holds within that time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def kill(folder: Path, moment: str, later: float, number: signal.Signals, *, resume: bool = True) -> list[str]:
    """What is wrong after a run in the folder was ended `later` seconds after the moment, or by itself before that.

    With `resume` it is also resumed.
    """
    run = Run.start(folder, MOMENTS[moment].trials)
    mark = str(folder)
    wrong: list[str] = []
    try:
        if not wait_for(lambda: MOMENTS[moment].seen(run) or run.process.poll() is not None):
            wrong.append(f"{moment} is not seen")
        time.sleep(later)
        told = run.told()
        if (status := run.process.poll()) is not None:  # in order, if it came to its end before its signal
            wrong += [f"it ended by itself, with status {status}"] if status else []
        else:
            run.process.send_signal(number)
            if number == signal.SIGKILL:
                run.process.wait()
            else:
                wrong += _ended_in_order(run, number)
        if not wait_for(lambda: not alive(mark), SECONDS):
            wrong += [f"left: {' '.join(p.cmdline())[-120:]}" for p in alive(mark)]
        if (records := run.records()) < told:
            wrong.append(f"{told} trials were told, {records} are recorded")
        Output(folder / "best.tsched").check()  # as the next run does first, which clears away what was being written
        if lying := {p.name for p in folder.iterdir()} - KEPT | {p.name for p in (folder / "tmp").iterdir()}:
            wrong.append(f"left behind: {', '.join(sorted(lying))}")
        if resume:
            wrong += _resumed(folder)
    finally:
        for process in alive(mark):
            process.kill()
        run.process.wait()
    return wrong


def _resumed(folder: Path) -> list[str]:
    """The errors of a resumed search: records that are lost or measured again."""
    before = _tried(folder)
    run = Run.start(folder, len(before) + FEW, "--resume")
    status = run.process.wait(PATIENCE)
    after = _tried(folder)
    wrong = [] if status == 0 else [f"resumed, it ends with status {status}: {run.said[-300:]}"]
    if after[: len(before)] != before or [n for n, _ in after] != list(range(len(before) + FEW)):
        wrong.append(f"of {len(before)} trials it goes on to {[n for n, _ in after]}")
    if len({key for _, key in after}) != len(after):
        wrong.append("a program was measured twice")
    return wrong


def _tried(folder: Path) -> list[tuple[int, str]]:
    """The numbers and programs of the recorded trials, in the order of the records."""
    with Database.open(folder / "r.sqlite") as database:
        found = [k.trial for k in database.all()]
    return [(t.trial, t.program_key) for t in found if isinstance(t, Trial) and t.phase == "trial"]


def _ended_in_order(run: Run, number: signal.Signals) -> list[str]:
    """It ends soon, with the signal's status, and where trials were told the best schedule is there."""
    try:
        status = run.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return [f"it goes on {PATIENCE:g} s after {number.name}"]
    wrong: list[str] = []
    # Before there is a handler the system ends it: the same to a shell.
    if status not in (128 + number, -number) and "KeyboardInterrupt" not in run.said:
        wrong.append(f"status {status} after {number.name}: {run.said[-300:]}")
    best = run.folder / "best.tsched"
    if run.told() and not (best.exists() and best.read_text().startswith("// product: ")):
        wrong.append("there is no best schedule")
    return wrong


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=("KILL", "TERM", "INT", "HUP"), default="KILL")
    options = parser.parse_args(argv)
    number, rng = signal.Signals[f"SIG{options.signal}"], random.Random(options.seed)
    failures = 0
    for n in range(options.count):
        moment, later = rng.choice(list(MOMENTS)), rng.uniform(0.0, 1.0)
        with tempfile.TemporaryDirectory() as folder:
            wrong = kill(Path(folder), moment, later, number)
        failures += bool(wrong)
        said = "; ".join(wrong) or "nothing left, nothing lost"
        print(f"{n + 1}: {number.name} {later:.2f} s after {moment}: {said}", flush=True)
    print(f"{options.count} ended by {number.name}: {failures} with something wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
