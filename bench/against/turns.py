"""Runs ours and the peers by turns, each in a process of its own, so that other load affects all alike.

All processes but the current one are stopped (SIGSTOP), since the thread pools of many libraries spin for a while after a
call, on the cores of the current one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import numpy as np

from bench.against import messages
from bench.against.contenders import Contender, environment
from bench.against.messages import NotOffered, Prepare, Prepared, Reply, Times, Turn
from bench.against.problem import Array, Problem
from tensorc_dsl.processes.protocol import Worker, WorkerBug, WorkerCrash, WorkerTimeout
from tensorc_dsl.tuning.measure.outcome import seconds_of

TURN_SECONDS = 0.05
"""The seconds of a turn."""

PREPARE_SECONDS = 3600.0
"""The time limit for building or tuning, in seconds."""

RUN_SECONDS = 300.0
"""The time limit of a turn, in seconds, which the slowest call must fit."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds of one call: the median over the rounds, and the quartiles on either side of it.

    A round counts with the lower quartile of its turn, as a candidate of a search does. `searched` is how many seconds a
    search took before, if there was one, and `tried` the times of its trials.
    """

    seconds: float
    low: float
    high: float
    note: str = ""
    searched: float | None = None
    tried: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    threads: int
    trials: int
    seed: int
    rounds: int
    records: Path


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, the folder with its inputs, and its expected outputs, each within `tolerance` anywhere."""

    problem: Problem
    folder: Path
    expected: tuple[Array, ...]
    tolerance: float


Outcome = Reading | str
"""Times, or the reason why there are none."""

NOT_OFFERED = "not offered"


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals by which a person or a system ends a command."""


class Bench:
    """The processes of ours and of the peers. Use it in a `with`, in the main thread.

    They are gone afterwards, with what they started in their groups, such as the pools of TVM; so they are when one of `ENDS`
    comes, which then is a SystemExit.
    """

    def __init__(self, ours: Contender, peers: Sequence[Contender], settings: Settings) -> None:
        self._settings = settings
        self._ours = ours
        self._peers = list(peers)
        told = environment(settings.threads)
        self._workers = {c: Worker(messages.LIBRARY, told) for c in (ours, *peers)}

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, _leave) for number in ENDS]
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        for w in self._workers.values():
            w.kill()
        for number, handler in zip(ENDS, self._before, strict=True):
            signal.signal(number, handler)

    def measure(self, case: Case) -> dict[str, Outcome]:
        """The outcome of each contender, by name. A library that fails is started again for the next case."""
        failed: dict[str, Outcome] = {}
        able: dict[Contender, Prepared] = {}
        for c in self._workers:
            found = self._prepared(c, case)
            if isinstance(found, Prepared):
                able[c] = found
            else:
                failed[c.name] = found
        times: dict[Contender, list[float]] = {c: [] for c in able}
        for _ in range(self._settings.rounds):
            for c in self._order(list(able)):
                found = self._asked(c, Turn(TURN_SECONDS), RUN_SECONDS) if c in able else failed[c.name]
                if isinstance(found, Times):
                    times[c].append(seconds_of(found.seconds))
                else:
                    failed[c.name] = str(found)
                    able.pop(c, None)
        return {c.name: failed[c.name] if c.name in failed else _reading(times[c], able[c]) for c in self._workers}

    def _order(self, able: Sequence[Contender]) -> list[Contender]:
        """One round: ours before each of the peers."""
        peers = [c for c in self._peers if c in able]
        if self._ours not in able:
            return peers
        return [c for peer in peers for c in (self._ours, peer)] or [self._ours]

    def _prepared(self, c: Contender, case: Case) -> Prepared | str:
        s = self._settings
        (case.folder / messages.RESULT).unlink(missing_ok=True)
        request = Prepare(c.module, case.problem, str(case.folder), s.threads, s.trials, s.seed, str(s.records))
        match self._asked(c, request, PREPARE_SECONDS):
            case Prepared() as prepared:
                return _wrong(case) or prepared
            case NotOffered():
                return NOT_OFFERED
            case other:
                return str(other)

    def _asked(self, c: Contender, request: Prepare | Turn, seconds: float) -> Reply | str:
        """The reply, or how the process failed."""
        worker = self._workers[c]
        with self._in_turn(worker):
            try:
                return worker.ask(request, seconds)
            except WorkerBug as e:
                return str(e).strip().rpartition("\n")[2]
            except WorkerCrash as e:
                return f"crashed: {e}"
            except WorkerTimeout:
                return f"took more than {seconds:g} s"

    @contextmanager
    def _in_turn(self, worker: Worker[Prepare | Turn, Reply]) -> Generator[None]:
        _tell(worker, signal.SIGCONT)
        try:
            yield
        finally:
            _tell(worker, signal.SIGSTOP)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _tell(worker: Worker[Prepare | Turn, Reply], number: signal.Signals) -> None:
    if worker.pid is not None:
        os.killpg(worker.pid, number)


def _reading(times: Sequence[float], prepared: Prepared) -> Reading:
    low, middle, high = map(float, np.quantile(times, [0.25, 0.5, 0.75]))
    return Reading(middle, low, high, prepared.note, prepared.searched, prepared.tried)


def _wrong(case: Case) -> str:
    """The difference between the outputs in the folder and the reference, as text; "" if there is none."""
    with np.load(case.folder / messages.RESULT) as file:
        found = tuple(file.values())
    shapes, right = (" and ".join(str(a.shape) for a in arrays) for arrays in (found, case.expected))
    if shapes != right:
        return f"wrong result: of shape {shapes}, not {right}"
    pairs = zip(found, case.expected, strict=True)
    error = float(np.max([np.abs(a.astype(np.float64) - b).max(initial=0.0) for a, b in pairs]))  # NaN if there is one
    return "" if error <= case.tolerance else f"wrong result: off by {error:.2g}, more than {case.tolerance:.2g}"
