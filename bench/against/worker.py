"""The process of one library: prepares a problem, then runs and times it in its turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np

from bench.against import messages
from bench.against.messages import NotOffered, Prepare, Prepared, Times, Turn
from bench.against.problem import Job, Ready, several
from tensorc_dsl.backend.memory import aligned_copy

BATCH_SECONDS = 0.001
"""The approximate seconds of a batch of calls that is timed, long compared with reading the clock."""

WARM_UP = 0.25
"""The share of a turn before it is timed: threads wake up, and the caches are filled with this library's data."""


def times_of(run: Callable[[], object], seconds: float) -> tuple[float, ...]:
    """Seconds of a call, for each of the batches of a turn; at least one."""
    calls, end = 0, time.perf_counter() + WARM_UP * seconds
    start = time.perf_counter()
    while (now := time.perf_counter()) < end or not calls:
        run()
        calls += 1
    batch = max(1, round(BATCH_SECONDS * calls / (now - start + 1e-9)))
    out: list[float] = []
    end = time.perf_counter() + seconds
    while not out or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(batch):
            run()
        out.append((time.perf_counter() - start) / batch)
    return tuple(out)


class Desk:
    """Answers requests. One problem at a time is prepared."""

    def __init__(self) -> None:
        self._ready: Ready | None = None

    def answer(self, request: Prepare | Turn) -> messages.Reply:
        match request:
            case Prepare():
                return self._prepare(request)
            case Turn(seconds=seconds):
                assert self._ready is not None, "nothing is prepared"
                return Times(times_of(self._ready.run, seconds))

    def _prepare(self, request: Prepare) -> Prepared | NotOffered:
        self._ready = None
        folder = Path(request.folder)
        problem = request.problem
        inputs = {name: aligned_copy(np.load(folder / f"{name}.npy")) for name in problem.types}
        job = Job(problem, inputs, request.threads, request.trials, request.seed, Path(request.records))
        self._ready = import_module(request.module).prepare(job)
        if self._ready is None:
            return NotOffered()
        self._ready.run()
        np.savez(folder / messages.RESULT, *several(self._ready.result()))
        return Prepared(self._ready.note, self._ready.searched, self._ready.tried)


def library() -> None:
    """Answer the harness until it is gone."""
    messages.LIBRARY.serve(Desk().answer)
