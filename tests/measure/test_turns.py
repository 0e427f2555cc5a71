"""Tests of turns: one process times at a time, builders share, and a killed or stopped process blocks no other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tensorc_dsl.processes import machine
from tensorc_dsl.processes.machine import Turns, Use

HOLD = """
import sys, threading
from pathlib import Path
from tensorc_dsl.processes.machine import Turns, Use
with Turns(folder=Path(sys.argv[1])).use(Use[sys.argv[2]]):
    print("mine", flush=True)
    threading.Event().wait()
"""

GUARD = 60.0
"""Seconds after which a test that waits has failed."""


def holder(folder: Path, use: Use) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, folder, use.name], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "mine\n"
    return child


def taken_in_time(folder: Path, use: Use, seconds: float = GUARD) -> bool:
    """Whether another thread gets its turn within so many seconds."""
    done = threading.Event()

    def take() -> None:
        with Turns(folder=folder).use(use):
            done.set()

    threading.Thread(target=take, daemon=True).start()
    return done.wait(seconds)


@pytest.mark.parametrize(
    ("theirs", "ours", "together"),
    [
        (Use.TIMING, Use.TIMING, False),
        (Use.TIMING, Use.BUILDING, False),
        (Use.BUILDING, Use.TIMING, False),
        (Use.BUILDING, Use.BUILDING, True),
    ],
)
def test_nothing_runs_beside_a_kernel_that_is_timed(tmp_path: Path, theirs: Use, ours: Use, together: bool) -> None:
    with Turns(folder=tmp_path).use(theirs):
        assert taken_in_time(tmp_path, ours, GUARD if together else 0.2) == together
    assert taken_in_time(tmp_path, ours)


def test_the_usual_folder_is_the_users_and_gives_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Turns().use(Use.TIMING):
        assert not taken_in_time(tmp_path / "tensorc-dsl", Use.TIMING, 0.1)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with Turns().use(Use.BUILDING):
        pass


@pytest.mark.parametrize("use", Use)
def test_a_turn_goes_with_its_process(tmp_path: Path, use: Use) -> None:
    with holder(tmp_path, use) as child:
        child.send_signal(signal.SIGKILL)
    assert taken_in_time(tmp_path, Use.TIMING)


def test_who_waits_comes_before_who_had_a_turn(tmp_path: Path) -> None:
    order: list[str] = []

    def other() -> None:
        with Turns(folder=tmp_path).use(Use.TIMING):
            order.append("other")

    ours, waiting = Turns(folder=tmp_path), threading.Thread(target=other)
    with ours.use(Use.TIMING):
        waiting.start()
        with (tmp_path / "gate.lock").open("rb") as gate:
            while _is_free(gate.fileno()):
                pass
    with ours.use(Use.TIMING):
        order.append("ours")
    waiting.join(GUARD)
    assert order == ["other", "ours"]


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def test_a_process_that_is_stopped_blocks_nobody_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PATIENCE", 1.0)
    told: list[bool] = []
    with holder(tmp_path, Use.TIMING) as child:
        child.send_signal(signal.SIGSTOP)
        ours = Turns(told.append, tmp_path)
        for _ in range(2):
            with ours.use(Use.TIMING):
                pass
        child.kill()
    assert told == [False, True]


def test_an_error_inside_ends_the_turn(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt), Turns(folder=tmp_path).use(Use.TIMING):
        raise KeyboardInterrupt
    assert len(os.listdir("/proc/self/fd")) == before
    assert taken_in_time(tmp_path, Use.TIMING)


def test_without_a_folder_there_are_no_turns_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Turns(folder=tmp_path / "file").use(Use.TIMING):
        pass


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "gate.lock").symlink_to(tmp_path / "elsewhere")
    with Turns(folder=tmp_path).use(Use.TIMING):
        pass
    assert not (tmp_path / "elsewhere").exists()
