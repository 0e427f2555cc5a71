"""What workers are worth, and what they cost the search: `python -m bench.cluster`.

Workers are processes on the loopback interface, through a scheduler of Dask. What they do is slept, so that the figures say
what the search and Dask add, and one machine can stand for many. `--trials 64 --slept 0.1` is a quick look.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.faces.api import SearchOptions, Task, loads
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.cluster.access import Address, read_token
from tensorc_dsl.tuning.cluster.pool import Pool, serve
from tensorc_dsl.tuning.cluster.runner import ClusterRunner
from tensorc_dsl.tuning.cluster.station import Answer, BuildOrder, Made, Orders, Roofed, Station, Timed, TimeOrder
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.log import SearchInput
from tensorc_dsl.tuning.search.tune import Search

TARGET = Target(cpu="haswell", features="+avx,+avx2,+fma", vector_bits=256)
FILE = "use std.cpu\nuse std.ops.{matmul}\ntask p = matmul(M=256, N=256, K=256)\n"

MANY, IN_ONE = 64, 16
"""The workers of the second part, and how many of them a process serves."""


class Slept(Station):
    """A worker that sleeps where others build and time, and whose times are functions of the kernels."""

    def __init__(self, number: int, token: bytes, building: float, timing: float) -> None:
        super().__init__(TARGET, token, machine=f"m{number}")
        self._sleeps = building, timing

    def do(self, order: Orders) -> Answer:
        match order:
            case BuildOrder(build=build):
                time.sleep(self._sleeps[0])
                return Made(Code(build.kernel, "kernel", frozenset()), None, self._sleeps[0])
            case TimeOrder(jobs=jobs, reference=reference):
                time.sleep(self._sleeps[1])
                look = None if reference is None else _seconds(reference)
                return Timed(
                    tuple(Outcome(Status.OK, s, (s,) * 8) for s in (_seconds(j.code) for j in jobs)), look, look
                )
            case _:
                return Roofed(Roof(1, 1, True, "peak", 1e12, 1e-9))


def _seconds(code: Code) -> float:
    return 1e-3 * (1.0 + int.from_bytes(hashlib.blake2b(code.object_code, digest_size=4).digest(), "little") / 2**32)


@contextmanager
def workers(count: int, building: float, timing: float) -> Generator[tuple[Pool, bytes]]:
    """A pool of so many workers, in processes of their own."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as s:
        token = Path(folder) / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        s.close()
        address = f"tcp://127.0.0.1:{port}"
        where = ["--host", "127.0.0.1", "--port", str(port), "--dashboard-address", "127.0.0.1:0", "--no-show"]
        started = [_start("-c", "from distributed.cli.dask_scheduler import main; main()", *where)]
        for first in range(0, count, IN_ONE if count > IN_ONE else 1):
            last = min(count, first + (IN_ONE if count > IN_ONE else 1))
            own = ["--serve", address, str(token), str(first), str(last), str(building), str(timing)]
            started.append(_start("-m", "bench.cluster", *own))
        try:
            secret = read_token(token)
            pool = Pool(Address.of(address), secret)
            _connected(pool)
            with closing(pool):
                while len(pool.workers()) < count:
                    time.sleep(0.1)
                yield pool, secret
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _connected(pool: Pool) -> None:
    from tensorc_dsl.base.diagnostic import TschedError

    until = time.monotonic() + 30.0
    while True:
        try:
            return pool.connect()
        except TschedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *command], start_new_session=True, stderr=subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Rate:
    """A search: its trials a second, the share of its processor time that went to orders and answers, and their bytes."""

    trials: int
    seconds: float
    processor: float
    dispatch: float
    sent: int

    def shown(self) -> str:
        return (
            f"{self.trials / self.seconds:6.1f} trials/s, {self.processor:5.1f} s of processor, "
            f"{self.dispatch / self.processor:5.1%} of it for dispatch ({1e3 * self.dispatch / self.trials:.2f} ms a trial), "
            f"{self.sent / self.trials / 1024:.1f} KiB a trial"
        )


def searched(task: Task, pool: Pool, trials: int, strategy: str) -> Rate:
    """A search of the task on the pool. Dispatch costs the processor time of this process while it measures."""
    with closing(ClusterRunner(task.program, TARGET, pool, threads=1)) as runner:
        given = SearchInput(
            space=task.model,
            program=task.program,
            target=TARGET,
            options=SearchOptions(trials=trials, strategy=strategy, shipped=False),
            runner=runner,
            threads=1,
            many=runner,
        )
        search = Search(given)
        measured = [0.0]
        measure = search._measure  # pyright: ignore[reportPrivateUsage]

        def timed(batch: Sequence[object]) -> None:
            began = time.process_time()
            measure(batch)  # pyright: ignore[reportArgumentType]
            measured[0] += time.process_time() - began

        search._measure = timed  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        sent, began, processor = pool.sent, time.monotonic(), time.process_time()
        while search.begun < trials:
            search.step(trials - search.begun, trials, trials)
        seconds = time.monotonic() - began
        used = time.process_time() - processor
    return Rate(trials, seconds, used, measured[0], pool.sent - sent)


def _end(_number: int, _frame: object) -> None:
    sys.exit(1)  # and the workers end, too


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--slept", type=float, default=0.4, help="seconds of what a task is bound by")
    parser.add_argument("--strategy", default="random")
    parser.add_argument("--serve", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        address, token, first, last, building, timing = given.serve
        secret = read_token(Path(token))
        stations = [Slept(n, secret, float(building), float(timing)) for n in range(int(first), int(last))]
        serve(Address.of(address), stations, patience=60.0)
        return
    signal.signal(signal.SIGTERM, _end)
    task = loads(FILE, native=TARGET)["p"]
    for kind, building, timing in (("build-bound", given.slept, 0.01), ("device-bound", 0.01, given.slept)):
        rates: list[float] = []
        for count in (1, 4):
            with workers(count, building, timing) as (pool, _):
                rate = searched(task, pool, given.trials, given.strategy)
            rates.append(rate.trials / rate.seconds)
            print(f"{kind:12} {count:2} workers: {rate.shown()}", flush=True)
        print(f"{kind:12} 4 workers do {rates[1] / rates[0]:.2f} times the trials a second of one", flush=True)
    with workers(MANY, 0.05, given.slept) as (pool, _):
        for strategy in ("random", "bayes"):
            rate = searched(task, pool, 4 * given.trials, strategy)
            print(f"{strategy:12} {MANY} workers: {rate.shown()}", flush=True)


if __name__ == "__main__":
    main()
