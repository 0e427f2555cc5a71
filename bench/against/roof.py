"""The roof of a task, under the best peaks of a whole run: the least time that the machine allows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import reduce

import msgspec

from tensorc_dsl import Task
from tensorc_dsl.tuning.machine import roof

FIRST_SECONDS = 1.0
"""The seconds for which peaks are measured before the first row, since other load may hold a core, or the system keep both
threads on one, for many milliseconds."""

ATTEMPTS = 3
"""The number of measurements with each row, and at least before the first."""

PAUSE = 0.03
"""Seconds between two measurements, so that the threads sleep and are placed on cores again."""


class Need(msgspec.Struct, frozen=True):
    """The least work of a task: operations for the peak `kind`, and the time of its arrays, each moved once.

    `kind` is empty if no measured instruction does these operations.
    """

    kind: str
    operations: int
    memory_seconds: float

    def seconds(self, peaks: Mapping[str, float]) -> float | None:
        """The least time of one call under these peaks (operations/s, by kind); None if it is unknown."""
        if self.operations and not self.kind:
            return None
        computing = self.operations / peaks[self.kind] if self.operations else 0.0
        return max(computing, self.memory_seconds)


class Roof:
    """The roof over the tasks of one run on `threads` threads.

    A peak can only rise: other load can only lower a measurement, so it is measured well before the first task, and again
    with each.
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
        """The work of the task. The peak of its kind is measured once more."""
        found = reduce(roof.Roof.better, (self._measured(task) for _ in range(ATTEMPTS)))
        if found.peak is not None:
            self.peaks[found.title] = max(self.peaks.get(found.title, 0.0), found.peak)
        return Need(found.title, found.operations, found.moving)

    def _measured(self, task: Task) -> roof.Roof:
        time.sleep(PAUSE)
        return roof.roof_of(task.program, task.target, self._threads)
