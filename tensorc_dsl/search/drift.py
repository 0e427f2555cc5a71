"""Detects a machine that has become slower, by running the best program so far again after each batch.

A search compares times that were taken minutes apart. If another process takes a core or the clock frequency drops, all later
candidates look slower than they are, and the model learns that. A program that was measured before serves as the yardstick.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.ir.program import Program
from tensorc_dsl.measure.outcome import Outcome

LEAST = 0.05
"""A change below this share is none, whatever the spread: candidates that differ by less are settled side by side."""

SPREADS = 3.0
"""How many times its own spread the best program's time may move: its spread is the interquartile range over the quartile."""

PATIENCE = 30.0
"""Seconds that a search waits at most, in all, for the machine to be as fast as before. It waits no longer than it has
searched: in that time, what it has measured so far could be measured again."""

PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between looks; the last one again and again."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The machine is as fast as it was."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The machine was `factor` times slower and has recovered: measurements from that time are to be repeated."""

    factor: float
    waited: float


@dataclass(frozen=True, slots=True)
class Slower:
    """The machine is `factor` times slower, and remains so."""

    factor: float
    waited: float


Look = Steady | Recovered | Slower


class Watch:
    """Compares the machine with its earlier speed. `again` runs a program that was measured lately once more.

    The search begins when this is made.
    """

    def __init__(
        self,
        again: Callable[[Program], Outcome],
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.again = again
        self._sleep = sleep
        self._clock = clock
        self._began = clock()
        self._program: Program | None = None
        self._seconds = 0.0
        self._limit = LEAST
        self._waited = 0.0
        self.scale = 1.0
        """How many times slower the machine is than it was, where it stays so."""

    def follow(self, program: Program, outcome: Outcome) -> None:
        """Make this program the yardstick; its time is that of a machine `scale` times slower."""
        if outcome.seconds is None or program is self._program:
            return
        self._program, self._seconds = program, outcome.seconds
        low, high = np.quantile(outcome.times or (outcome.seconds,), (0.25, 0.75))
        self._limit = max(LEAST, SPREADS * float(high / low - 1.0))

    def look(self, told: Callable[[float], None]) -> Look:
        """The speed of the machine. If it is slower than before, `told` is called with the factor, and the search waits for
        a while; the total of such waits is limited."""
        factor = self._factor()
        if self._same(factor, self.scale):
            return Steady() if self.scale == 1.0 else Slower(self.scale, 0.0)
        if factor < self.scale:
            return self._faster(factor)
        told(factor)
        waited, pauses = 0.0, iter(PAUSES)
        pause = next(pauses)
        left = self._left()
        while left > 0.0 and not self._same(factor, 1.0) and factor > 1.0:
            self._sleep(pause := min(pause, left))
            waited, left = waited + pause, left - pause
            factor, pause = self._factor(), next(pauses, PAUSES[-1])
        self._waited += waited
        if self._same(factor, 1.0) or factor < 1.0:
            self.scale = 1.0
            return Recovered(factor, waited)
        self.scale = factor
        return Slower(factor, waited)

    def _left(self) -> float:
        """The seconds for which the search may still wait."""
        searched = self._clock() - self._began - self._waited
        return min(PATIENCE, searched) - self._waited

    def _faster(self, factor: float) -> Look:
        """The machine has recovered, or the yardstick was measured in a slow moment and is faster than recorded."""
        was = self.scale
        self.scale = 1.0
        if was == 1.0 and factor < 1.0:
            self._seconds *= factor
            return Recovered(1.0 / factor, 0.0)
        return Recovered(was, 0.0)

    def _factor(self) -> float:
        """The factor by which the yardstick is slower than before; 1 if there is none or it fails."""
        if self._program is None:
            return 1.0
        now = self.again(self._program).seconds
        return 1.0 if now is None else now / self._seconds

    def _same(self, one: float, other: float) -> bool:
        return max(one, other) <= (1.0 + self._limit) * min(one, other)
