"""A run that is ended from outside ends all processes of the libraries."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = """
import os, subprocess, time
def prepare(job):
    held = os.open({fifo!r}, os.O_WRONLY)
    subprocess.Popen(["sleep", "3600"], pass_fds=[held])
    os.write(held, b"+")
    time.sleep(3600)
"""
"""Both its process and the one that it starts hold the pipe open."""

COMMAND = """
from pathlib import Path
import numpy as np
from bench.against.contenders import Contender
from bench.against.problem import Problem
from bench.against.turns import Bench, Case, Settings
folder = Path({folder!r})
settings = Settings(threads=1, trials=1, seed=0, rounds=1, records=folder / "records.sqlite")
with Bench(Contender("fake", "fake", ()), [], settings) as bench:
    bench.measure(Case(Problem("t.tsched", "t_0", "copy", {{}}, {{}}), folder, np.zeros(1), 0.0))
"""

PATIENCE = 120.0
"""Seconds in which a loaded machine does it too."""


def received(pipe: int) -> bytes:
    """What comes next through the pipe; nothing when all who held it open are gone."""
    ready, _, _ = select.select([pipe], [], [], PATIENCE)
    assert ready, "somebody holds the pipe open"
    return os.read(pipe, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_no_process_stays_behind(tmp_path: Path, number: signal.Signals) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "fake.py").write_text(LIBRARY.format(fifo=str(fifo)))
    # A reader who waits for no writer; and a writer, until the library's is there.
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    first = os.open(fifo, os.O_WRONLY)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(folder=str(tmp_path))],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    ) as bench:
        assert received(pipe) == b"+"
        os.close(first)
        bench.send_signal(number)
        assert received(pipe) == b""
        assert bench.wait(PATIENCE) == 128 + number
    os.close(pipe)
