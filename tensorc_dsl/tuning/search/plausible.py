"""Checks times against the roof of the machine: an implausibly short time is measured again, and then is a failure.

The clock of a suspended machine may jump, and a candidate that looks a hundred times faster than the peak would win every
search. But the roof is only an estimate: it is measured, perhaps beside other work, and a compiler may need fewer operations
than the program has. So only times below half the roof's time are suspected, and only after the roof was measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from tensorc_dsl.base import units
from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.input import RunnerLike

BEYOND = 2.0
"""A time is suspected where the roof's is more than this many times longer."""


class Repeats(RunnerLike, Protocol):
    """A runner that can run again what it ran lately; `tuning.measure.local.LocalRunner` is one."""

    def again(self, program: Program, best: float | None = None) -> Outcome: ...


def least_seconds(roof: Roof) -> float:
    """The least time of a call: its bytes at the bandwidth, or its operations at the peak, as far as those are
    known. Operations on integers do not count: compilers turn sums of them into products."""
    computing = roof.operations / roof.peak if roof.peak and roof.is_float else 0.0
    return max(roof.moving, computing)


class Plausible:
    """Measures as another runner does; times that are too short are failures. `look` measures the roof again."""

    def __init__(self, runner: Repeats, roof: Roof, look: Callable[[], Roof]) -> None:
        self._runner = runner
        self._roof = roof
        self._look: Callable[[], Roof] | None = look

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        for program, outcome in zip(programs, self._runner.measure(programs, best), strict=True):
            yield self._held(program, outcome)

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        found = self._runner.compare(programs)
        return [self._held(p, o) for p, o in zip(programs, found, strict=True)]

    def again(self, program: Program, best: float | None = None) -> Outcome:
        return self._held(program, self._runner.again(program, best))

    def least(self) -> float:
        """The least time of a call, by the highest roof so far."""
        return least_seconds(self._roof)

    def _held(self, program: Program, outcome: Outcome) -> Outcome:
        if not self._too_fast(outcome):
            return outcome
        if self._look is not None:
            self._roof, self._look = self._roof.better(self._look()), None
            if not self._too_fast(outcome):
                return outcome
        again = self._runner.again(program)
        return _rejected(again, least_seconds(self._roof)) if self._too_fast(again) else again

    def _too_fast(self, outcome: Outcome) -> bool:
        return outcome.seconds is not None and BEYOND * outcome.seconds < least_seconds(self._roof)


def _rejected(outcome: Outcome, least: float) -> Outcome:
    taken = units.seconds(outcome.seconds or 0.0)
    message = f"it takes {taken}, twice, and the machine needs at least {units.seconds(least)}"
    return replace(outcome, status=Status.TOO_FAST, seconds=None, message=message)
