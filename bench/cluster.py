"""What workers are worth, and what they cost the search: `python -m bench.cluster`.

Workers are processes on the loopback interface, through a scheduler of Dask. What they do is slept, so that the figures say
what the search and Dask add, and one machine can stand for many. `--trials 64 --slept 0.1` is a quick look.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.faces.api import SearchOptions, Task, loads
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.cluster.access import Address, read_token
from tensorc_dsl.tuning.cluster.pool import Pool, serve
from tensorc_dsl.tuning.cluster.runner import ClusterRunner
from tensorc_dsl.tuning.cluster.station import Answer, BuildOrder, Made, Orders, Roofed, Station, Timed, TimeOrder
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Late, Outcome, Status
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


class Counted(ClusterRunner):
    """Counts the processor time of the thread that gives orders and takes answers, while it does."""

    spent = 0.0

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome | Late]:
        began = time.thread_time()
        outcomes = super().measure(programs, best)
        self.spent += time.thread_time() - began
        return self._one_by_one(outcomes)

    def _one_by_one(self, outcomes: Iterator[Outcome | Late]) -> Iterator[Outcome | Late]:
        while True:
            began = time.thread_time()
            outcome = next(outcomes, None)
            self.spent += time.thread_time() - began
            if outcome is None:
                return
            yield outcome

    def late(self, wait: bool = False) -> list[tuple[Program, Outcome]]:
        began = time.thread_time()
        found = super().late(wait)
        self.spent += time.thread_time() - began
        return found


def searched(task: Task, pool: Pool, trials: int, strategy: str) -> Rate:
    """A search of the task on the pool. Dispatch costs what the search's thread spends in its runner, and all that threads of
    Dask do: they send and receive."""
    with closing(Counted(task.program, TARGET, pool, threads=1)) as runner:
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
        sent, began, processor, others = pool.sent, time.monotonic(), time.process_time(), _others()
        while search.begun < trials:
            search.begin(trials - search.begun, trials, trials)
            search.end()
        seconds = time.monotonic() - began
        used, dispatch = time.process_time() - processor, runner.spent + _others() - others
    return Rate(trials, seconds, used, dispatch, pool.sent - sent)


def _others() -> float:
    """The processor seconds of the other threads of Python, which are those of Dask; BLAS has its own."""
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(t.ident))
        for t in threading.enumerate()
        if t.ident is not None and t is not threading.current_thread()
    )


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
    gc.set_threshold(100_000, 20, 20)  # as the command; a collection counts for the thread that begins it
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
            rate = searched(task, pool, given.trials, strategy)
            print(f"{strategy:12} {MANY} workers: {rate.shown()}", flush=True)


if __name__ == "__main__":
    main()
