"""What a kernel's time is held against: what the machine allows, and NumPy where it does the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.machine.baseline import has_numpy, numpy_seconds
from tensorc_dsl.machine.roof import MEASURING, Roof, roof_of
from tensorc_dsl.units import counted

PATIENT = 10.0
"""Seconds that NumPy's check and its times may take to be repeated."""


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """`numpy_seconds` is per call, None where NumPy has no functions for it."""

    roof: Roof
    numpy_seconds: float | None

    def better(self, other: Yardsticks) -> Yardsticks:
        """The higher roof and the shorter time: whatever else ran on the machine can only have hidden them."""
        times = [t for t in (self.numpy_seconds, other.numpy_seconds) if t is not None]
        return Yardsticks(self.roof.better(other.roof), min(times, default=None))


@dataclass(slots=True)
class Measuring:
    """Measures both for a task, on that many threads; `begin` is told what begins."""

    program: Program
    target: Target
    threads: int
    begin: Callable[[str], None]
    clock: Callable[[], float] = time.perf_counter
    _numpy_took: float = 0.0

    def first(self) -> Yardsticks:
        self.begin(f"{MEASURING} on {counted(self.threads, 'thread')}")
        return Yardsticks(roof_of(self.program, self.target, self.threads), self._numpy())

    def again(self) -> Yardsticks:
        """Once more: what else ran on the machine may have ended. NumPy only where that is soon done."""
        self.begin("measuring the machine again")
        roof = roof_of(self.program, self.target, self.threads)
        return Yardsticks(roof, self._numpy() if self._numpy_took < PATIENT else None)

    def _numpy(self) -> float | None:
        if not has_numpy(self.program):
            return None
        self.begin("timing NumPy")
        before = self.clock()
        try:
            return numpy_seconds(self.program, self.threads)
        finally:
            self._numpy_took = self.clock() - before
