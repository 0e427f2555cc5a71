"""Stations that build and time nothing: their answers are functions of the kernels, and their durations are slept."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.cluster.access import Address
from tensorc_dsl.tuning.cluster.pool import Pool
from tensorc_dsl.tuning.cluster.runner import ClusterRunner
from tensorc_dsl.tuning.cluster.station import (
    Answer,
    BuildOrder,
    Made,
    Orders,
    Roofed,
    RoofOrder,
    Station,
    Timed,
    TimeOrder,
)
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import MachineChange, Outcome, Status

TOKEN = b"a token of the tests, of enough bytes"
TARGET = Target(cpu="haswell", features="+avx,+avx2,+fma", vector_bits=256)
FILE = """
use std.ops.{matmul}
schedule tiles for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=3, max_innermost=32)
    let columns ~ sample_perfect_tile(j, parts=3, max_innermost=32)
    let depth ~ sample_perfect_tile(k, parts=2, max_innermost=32)
    let [i0, i1, i2] = split(i, rows)
    let [j0, j1, j2] = split(j, columns)
    let [k0, k1] = split(k, depth)
    reorder(i0, j0, k0, i1, j1, k1, i2, j2)
}
task p = matmul(M=32, N=32, K=32) with tiles
"""
"""A space of 2,646 programs, each of which is expanded and lowered at once: what workers do does not depend on the space."""


@cache
def task() -> Task:
    return loads(FILE, native=TARGET)["p"]


@cache
def traces(count: int) -> list[Trace]:
    return [task().sample(seed) for seed in range(count)]


def programs(count: int) -> list[Program]:
    return [t.program for t in traces(count)]


def seconds_of(kernel: bytes) -> float:
    """The made-up time of a kernel."""
    return 1e-3 * (1.0 + int.from_bytes(hashlib.blake2b(kernel, digest_size=4).digest(), "little") / 2**32)


def time_of(program: Program, target: Target = TARGET) -> float:
    return seconds_of(lowered_once(program, target).packed.data)


Fault = Callable[[Orders], None]


def first_together(stations: int) -> Fault:
    """A fault of so many stations, whose first timings begin together: each has one, however busy the machine is."""
    barrier, own = threading.Barrier(stations), threading.local()

    def fault(order: Orders) -> None:
        if isinstance(order, TimeOrder) and not hasattr(own, "begun"):  # each station times in one thread
            own.begun = True
            barrier.wait(60)

    return fault


class Turn:
    """Stations whose timings wait for those of another one, in an order that no speed of the machine changes."""

    def __init__(self, timings: int = 1) -> None:
        """It is there when `others` has begun so many timings, or was told."""
        self.there = threading.Event()
        self._left = timings

    def others(self, order: Orders) -> None:
        """A fault of the station that is waited for."""
        if isinstance(order, TimeOrder):
            self._left -= 1
            if self._left <= 0:
                self.there.set()

    def waits(self, first: int = 0) -> Fault:
        """A fault of a station that waits at each timing but so many at first."""
        numbers = count()

        def fault(order: Orders) -> None:
            if isinstance(order, TimeOrder) and next(numbers) >= first:
                assert self.there.wait(60)

        return fault


class Stub(Station):
    """Sleeps for `building` and `timing` seconds, and says that each kernel takes `slower` times its time.

    An order may take `limit` seconds. `log` has (what, order, station, begin, end) of each order. `fault` is called with each
    order before it is carried out.
    """

    def __init__(
        self,
        number: int = 0,
        *,
        target: Target = TARGET,
        token: bytes = TOKEN,
        building: float = 0.0,
        timing: float = 0.0,
        limit: float = 20.0,
        slower: Callable[[], float] = lambda: 1.0,
        builders: int = 1,
        times: bool = True,
        fault: Fault = lambda _: None,
        log: list[tuple[str, str, int, float, float]] | None = None,
        words: Mapping[bytes, Outcome] | None = None,
    ) -> None:
        super().__init__(target, token, machine=f"m{number}", builders=builders, times=times)
        self.number, self.building, self.timing, self.limit, self.slower = number, building, timing, limit, slower
        self.fault, self.log, self.words = fault, [] if log is None else log, words or {}
        self.lock = threading.Lock()

    def do(self, order: Orders) -> Answer:
        began = time.monotonic()
        self.fault(order)
        match order:
            case BuildOrder(build=build):
                time.sleep(self.building)
                self._built += 1
                found: Answer = Made(Code(build.kernel, "kernel", frozenset()), None, self.building)
            case TimeOrder(jobs=jobs):
                with self._busy(order.id, self.limit):
                    time.sleep(self.timing)
                self._timed += len(jobs)
                reference = None if order.reference is None else self.slower() * seconds_of(order.reference.object_code)
                outcomes = tuple(self.outcome(job.code.object_code) for job in jobs)
                after = None if order.reference is None else self.slower() * seconds_of(order.reference.object_code)
                found = Timed(outcomes, reference, after)
            case RoofOrder():
                found = Roofed(Roof(2 * 32**3, 3 * 32 * 32 * 4, True, "peak", 1e12, 1e-9))
        with self.lock:
            self.log.append((type(order).__name__, order.id, self.number, began, time.monotonic()))
        return found

    def outcome(self, kernel: bytes) -> Outcome:
        if kernel in self.words:
            return self.words[kernel]
        seconds = self.slower() * seconds_of(kernel)
        return Outcome(Status.OK, seconds, (seconds,) * 8)


@contextmanager
def stubs(
    *stations: Station, changes: list[MachineChange] | None = None, patience: float = 5.0
) -> Iterator[ClusterRunner]:
    """A runner on these stations, in this process."""
    with Pool(Address.of(f"local:{len(stations)}"), TOKEN, lambda n: stations[n]) as pool:
        told = [] if changes is None else changes
        runner = ClusterRunner(
            task().program, TARGET, pool, threads=1, told=told.append, patience=patience
        )  # fmt: skip
        try:
            yield runner
        finally:
            runner.close()


def measured(runner: ClusterRunner, some: Sequence[Program]) -> list[Outcome]:
    """The outcomes of the programs, the late ones last."""
    found = [o for o in runner.measure(some, None) if isinstance(o, Outcome)]
    return [*found, *(o for _, o in runner.late(wait=True))]


def token_file(folder: Path) -> Path:
    """The token in a file of the folder."""
    at = folder / "token"
    at.touch(mode=0o600)
    at.write_bytes(TOKEN)
    return at
