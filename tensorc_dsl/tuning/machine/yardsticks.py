"""Measures the roof, and the time of NumPy if it has functions for the task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.machine.baseline import has_numpy, numpy_seconds
from tensorc_dsl.tuning.machine.roof import GLANCE, MEASURING, PATIENCE, Roof, roof_of

BUSY = 1.3
"""A machine with this many times less than the highest peak or bandwidth that was seen is busy. Both vary by some percent."""


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """`numpy_seconds` is per call; None if NumPy has no functions for the task, or was not timed. It is `numpy_disturbed` if
    its calls did not agree, or the machine was busy."""

    roof: Roof
    numpy_seconds: float | None = None
    numpy_disturbed: bool = False


@dataclass(frozen=True, slots=True)
class Measuring:
    """Measures both for a task on a number of threads; `begin` is called before each measurement.

    A search shows only the roof while it runs, which is measured quickly. NumPy is timed afterwards.
    """

    program: Program
    target: Target
    threads: int
    begin: Callable[[str], None]

    def first(self) -> Yardsticks:
        """The roof by a short measurement, which is repeated later."""
        self.begin(f"{MEASURING} on {self.target.workers(self.threads)}")
        return Yardsticks(self._roof(GLANCE))

    def beside_numpy(self, known: Yardsticks) -> Yardsticks:
        """The known values, and NumPy's time if it has functions for the task, and runs on the same machine: not for GPUs."""
        if self.target.device or not has_numpy(self.program):
            return known
        self.begin("timing NumPy")
        timed = numpy_seconds(self.program, self.threads)
        if timed is None:
            return known
        busy = _slower(self._roof(GLANCE), known.roof) > BUSY
        return replace(known, numpy_seconds=timed.seconds, numpy_disturbed=busy or timed.disturbed)

    def again(self, known: Yardsticks) -> Yardsticks:
        """The higher of two roofs, since other load can only lower a measured one."""
        self.begin("measuring the machine again")
        return replace(known, roof=known.roof.better(self._roof(PATIENCE)))

    def _roof(self, patience: float) -> Roof:
        return roof_of(self.program, self.target, self.threads, patience)


def _slower(now: Roof, best: Roof) -> float:
    """How many times slower the machine is than it was at its best, at computing or at moving data."""
    computing = best.peak / now.peak if best.peak and now.peak else 1.0
    return max(computing, now.moving / best.moving if best.moving else 1.0)
