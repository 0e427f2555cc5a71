"""The roof of a task: the least time on this machine, for its operations at the peak or its bytes at the bandwidth.

Williams, Waterman and Patterson, Roofline (2009).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec

from tensorc_dsl import Task
from tensorc_dsl.backend.llvm.runtime.bandwidth import bandwidth
from tensorc_dsl.backend.llvm.runtime.peak import DOT_BF16, DOT_U8I8, FMA, peak
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.count import bytes_moved

FIRST_SECONDS = 1.0
"""The seconds for which a peak is measured before the first row, since other load may hold a core, or the system keep both
threads on one, for many milliseconds."""

ATTEMPTS = 3
"""The number of measurements with each row, and at least before the first."""

PAUSE = 0.03
"""Seconds between two measurements, so that the threads sleep and are placed on cores again."""

KINDS = {"f32": FMA, "u8i8": DOT_U8I8, "bf16": DOT_BF16}
"""The instruction that each named peak measures."""


class Need(msgspec.Struct, frozen=True):
    """The least work of a task: operations for the peak `kind`, and the time of its arrays, each moved once."""

    kind: str
    operations: int
    memory_seconds: float

    def seconds(self, peaks: Mapping[str, float]) -> float:
        """The least time of one call under these peaks (operations/s, by kind)."""
        return max(self.operations / peaks[self.kind], self.memory_seconds)


class Roof:
    """The roof over the tasks of one run on `threads` threads.

    A peak is that of the best instruction for the types of a task's inputs. It can only rise: other load can only
    lower a measurement, so it is measured well before the first task, and again with each. Bandwidth is that of memory as
    large as the task's arrays together, each of which is read or written at least once.
    """

    def __init__(self, tasks: Iterable[Task], threads: int) -> None:
        self._threads = threads
        self.peaks: dict[str, float] = {}
        """The best that was seen so far, in operations/s."""
        for kind, target in {_kind(t): t.target for t in tasks}.items():
            self._raise(kind, target, FIRST_SECONDS)

    def need(self, task: Task) -> Need:
        """The work of the task. The peak of its kind is measured once more."""
        kind, size = _kind(task), bytes_moved(task.program)
        self._raise(kind, task.target, 0.0)
        rate = max(bandwidth(task.target, self._threads, size) for _ in range(ATTEMPTS))
        return Need(kind, task.flops, size / rate)

    def _raise(self, kind: str, target: Target, seconds: float) -> None:
        """Measure the peak for so long."""
        end, done = time.monotonic() + seconds, 0
        while done < ATTEMPTS or time.monotonic() < end:
            time.sleep(PAUSE)
            self.peaks[kind] = max(self.peaks.get(kind, 0.0), peak(KINDS[kind], target, self._threads))
            done += 1


def _kind(task: Task) -> str:
    """What multiplies and adds most values of the types of the inputs at once."""
    types, features = {b.dtype.name for b in task.program.inputs}, task.target.feature_names
    if types == {"u8", "i8"} and "avx512vnni" in features:
        return "u8i8"
    if types == {"bf16"} and "avx512bf16" in features:
        return "bf16"
    return "f32"
