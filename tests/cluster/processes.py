"""A scheduler and workers in processes of their own, on the loopback interface."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]


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
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        self.all.append(process)
        return process

    def schedule(self) -> None:
        """Start the scheduler, and wait until it listens."""
        code = "from distributed.cli.dask_scheduler import main; main()"
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--dashboard-address", "127.0.0.1:0", "--no-show"]
        self.scheduler = self.start("scheduler", "-c", code, *where)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError("no scheduler")

    def work(self, number: int, timing: float = 0.05, *deadly: str) -> None:
        """Start a worker of stubs."""
        self.workers[number] = self.start(
            f"w{number}", "-m", "tests.cluster.stub_worker", self.address, str(number), str(timing), *deadly
        )

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


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
