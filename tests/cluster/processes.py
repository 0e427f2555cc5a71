"""A scheduler and workers in processes of their own, on the loopback interface."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from tests.started import MOMENT

ROOT = Path(__file__).resolve().parents[2]

_NURSERY = f"""
{MOMENT}
import json, os, signal, sys, traceback
from distributed.cli import dask_scheduler
from tensorc_dsl.faces.cli.main import main as command
from tests.cluster import stub_worker

MAINS = {{"scheduler": dask_scheduler.main, "worker": stub_worker.main, "tensorc-dsl": command}}
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended is gone at once


def begin(main, out, arguments):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream, (file, how) in enumerate([(os.devnull, os.O_RDONLY), *[(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)] * 2]):
        os.dup2(os.open(file, how, 0o600), stream)
    sys.argv = arguments
    main()


for line in sys.stdin:
    what, out, *arguments = json.loads(line)
    pid = os.fork()
    if not pid:
        try:
            begin(MAINS[what], out, [what, *arguments])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.setpgid(pid, pid)
    print(pid, flush=True)
"""


class Forked:
    """A process of the nursery. It leads a group of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> None:
        while self.poll() is None:
            time.sleep(0.005)


class Nursery:
    """A process that has loaded Dask and this package, and forks schedulers and workers: each would load them for seconds."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _NURSERY], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def start(self, what: str, out: Path, *arguments: str) -> Forked:
        """Start a `scheduler`, a `worker` of stubs or a command of `tensorc-dsl`; it writes to the end of a file."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([what, str(out), *arguments]), file=self._process.stdin, flush=True)
        return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=60)


@cache
def nursery() -> Nursery:
    found = Nursery()
    atexit.register(found.close)
    return found


Process = subprocess.Popen[bytes] | Forked


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """Ended with its context. Each process leads a group of its own, which is killed as a whole."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler: Process | None = None
        self.workers: dict[int, Process] = {}
        self.all: list[Process] = []

    def fork(self, what: str, name: str, *arguments: str) -> Process:
        process = nursery().start(what, self.folder / f"{name}.out", *arguments)
        self.all.append(process)
        return process

    def start(self, name: str, *command: str) -> Process:
        """Start a program of Python, with its own interpreter."""
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        self.all.append(process)
        return process

    def schedule(self) -> None:
        """Start the scheduler, and wait until it listens."""
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--dashboard-address", "127.0.0.1:0", "--no-show"]
        self.scheduler = self.fork("scheduler", "scheduler", *where)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError("no scheduler")

    def work(self, number: int, *deadly: str, timing: float = 0.0, free: int = 1000) -> None:
        """Start a worker of stubs, which waits at each timing after so many until the gate is open."""
        arguments = (self.address, str(number), str(timing), str(free), str(self.folder / "gate"), *deadly)
        self.workers[number] = self.fork("worker", f"w{number}", *arguments)

    def open_gate(self) -> None:
        """Let the workers go on."""
        (self.folder / "gate").touch()

    def ran(self, number: int) -> list[str]:
        """The orders that a worker has begun to time."""
        at = self.folder / f"w{number}.out"
        return [line for line in at.read_text().splitlines() if line.count("-") >= 2] if at.exists() else []

    def __enter__(self) -> Self:
        self.schedule()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.all:
            kill(process)


def kill(process: Process) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
