"""The least time that this machine allows a task: the product's own roof, under the best peaks of a whole run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import reduce

import msgspec

from tensorc_dsl import Task
from tensorc_dsl.machine import roof

FIRST_SECONDS = 1.0
"""How long peaks are measured before the first row: what else runs may hold a core, or the system keep both threads on one,
for many milliseconds."""

ATTEMPTS = 3
"""Measurements with each row, and the fewest before the first."""

PAUSE = 0.03
"""Seconds between two measurements: then the threads have slept, and are placed anew."""


class Need(msgspec.Struct, frozen=True):
    """What a task takes at the least: so many operations of the peak `kind`, and so long for its arrays, each moved once.

    `kind` is empty where nothing that is measured stands for the operations.
    """

    kind: str
    operations: int
    memory_seconds: float

    def seconds(self, peaks: Mapping[str, float]) -> float | None:
        """The least time of one call under these peaks of the machine (operations/s, by kind); None where it is not known."""
        if self.operations and not self.kind:
            return None
        computing = self.operations / peaks[self.kind] if self.operations else 0.0
        return max(computing, self.memory_seconds)


class Roof:
    """The roof over the tasks of one run on `threads` threads.

    A peak only rises: what else the machine does can hide it, so it is measured well before the first task, and again with
    each.
    """

    def __init__(self, tasks: Iterable[Task], threads: int) -> None:
        self._threads = threads
        self.peaks: dict[str, float] = {}
        """The best that was seen so far, in operations/s."""
        for task in {(roof.kind_of(t.program), t.target): t for t in tasks}.values():
            end = time.monotonic() + FIRST_SECONDS
            self.need(task)
            while time.monotonic() < end:
                self.need(task)

    def need(self, task: Task) -> Need:
        """What the task needs. The peak of its kind has been measured once more afterwards."""
        found = reduce(roof.Roof.better, (self._measured(task) for _ in range(ATTEMPTS)))
        if found.peak is not None:
            self.peaks[found.title] = max(self.peaks.get(found.title, 0.0), found.peak)
        return Need(found.title, found.operations, found.moving)

    def _measured(self, task: Task) -> roof.Roof:
        time.sleep(PAUSE)
        return roof.roof_of(task.program, task.target, self._threads)
