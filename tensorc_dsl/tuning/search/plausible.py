"""Which times are believed: not those of a machine that became slower, nor those shorter than the machine allows.

A search compares times that were taken minutes apart. If another process takes a core or the clock frequency drops, all
later candidates look slower than they are, and the model learns that. So a yardstick is run again: a program whose
undisturbed time is known. Other work only adds time, so that time is the least that was measured, as it was measured. No
corrected time becomes a yardstick's: a factor is never the product of earlier ones.

A neighbour may slow the memory alone, which a program that computes does not feel. So moving memory is a second yardstick.
How much of a candidate's time is memory is not known, nor of the first yardstick's: while memory is slow, times are divided
only by what computing is slower, too, and stay uncertain by the rest. A change of memory counts where it could change the
best time by a share that counts: of a kernel that moves its data in a tenth of its time, a third more is not seen.

The clock of a suspended machine may jump, and a candidate that looks a hundred times faster than the peak would win
every search. But the roof is only an estimate: it is measured, perhaps beside other work, and a compiler may need fewer
operations than the program has. So only times below half the roof's time are suspected, and only after the roof was
measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.protocol import require_backend
from tensorc_dsl.base import units
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import Turns, Use
from tensorc_dsl.tuning.machine.roof import LARGEST as LARGEST_MOVED
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Concurrent, Late, Outcome, RunnerLike, Status
from tensorc_dsl.tuning.records.schema import LARGEST

LEAST = 0.05
"""A change below this share is none, whatever the spread: candidates that differ by less are settled side by side."""

SPREADS = 3.0
"""How many times its own spread the yardstick's time may move: its spread is the interquartile range over the quartile."""

PATIENCE = 30.0
"""Seconds that a search waits at most, in all, for the machine to be as fast as before. It waits no longer than it has
searched: in that time, what it has measured so far could be measured again."""

PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between looks; the last one again and again."""

LOOKS = 2
"""Full runs of the yardstick after a brief one that differs. The nearest to the last speed counts: a spike hits one."""

SHARE = 8.0
"""Looks within a batch are at least so many times their own length apart."""

BRIEF = 0.5
"""A brief run is given this share of the undisturbed time as the time to beat, so that it is timed for a moment only."""


class Again(Protocol):
    """Runs a program that was measured lately once more; one that is far slower than `best` is timed briefly."""

    def __call__(self, program: Program, best: float | None = None) -> Outcome: ...


@frozen
class Look:
    """All programs took `before` times as long as undisturbed at the last look, and take `after` times as long now.

    Some took up to `worst` times as long at the slowest look; `same` if all took as long at all of them. The search `waited`
    so many seconds in between. `revised` is how many times faster than ever before the machine is, 1 if it is not, and
    `memory` how many times slower its memory is than undisturbed. What was measured before may have taken up to
    `unseen` times as long as it had to, since its memory was never as fast as now.
    """

    before: float
    after: float
    worst: float
    same: bool
    waited: float = 0.0
    revised: float = 1.0
    memory: float = 1.0
    unseen: float = 1.0


@dataclass(slots=True)
class Yardstick:
    """A yardstick that is no candidate: `measure` returns the seconds that some work took."""

    measure: Callable[[], float]
    share: float = 1.0
    """Which share of the time of what is timed this work has."""
    seconds: float = 0.0
    """Its undisturbed time."""
    spread: float = 0.0
    scale: float = 1.0
    """How many times as long as undisturbed it took at the last look."""

    def begin(self) -> None:
        first = sorted(self.measure() for _ in range(LOOKS + 1))
        self.seconds = first[0]
        self.spread = first[len(first) // 2] / first[0] - 1.0

    @property
    def limit(self) -> float:
        """A smaller change is none: it is that of its own times, or changes what is timed by less than counts."""
        return max(LEAST / self.share, SPREADS * self.spread)

    def factor(self) -> float:
        return self.measure() / self.seconds

    def same(self, one: float, other: float) -> bool:
        return max(one, other) <= (1.0 + self.limit) * min(one, other)

    def settle(self, factor: float) -> float:
        """Take the factor of this look. Returns how many times faster than ever before the memory is, 1 if it is not."""
        unseen = 1.0
        if factor < 1.0 and not self.same(factor, 1.0):
            unseen = 1.0 / factor
            self.seconds *= factor
        self.scale = 1.0 if factor < 1.0 or self.same(factor, 1.0) else factor
        return unseen


class Watch:
    """Compares the machine with its speed at first. `least` is the least time of a call on this machine, by its roof.
    `memory` moves memory and returns the seconds that it took, where programs feel that, and `computing` computes. `moving`
    is the seconds that the data of a call take to be moved; without it, all of a call's time may be that.

    The search begins when this is made.
    """

    def __init__(
        self,
        again: Again,
        *,
        least: Callable[[], float] = lambda: 0.0,
        memory: Callable[[], float] | None = None,
        computing: Callable[[], float] | None = None,
        moving: float | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.again = again
        self._least = least
        self._memory = None if memory is None else Yardstick(memory)
        self._computing = None if computing is None or memory is None else Yardstick(computing)
        self._moving = moving
        self._common = 1.0
        """How many times as long as undisturbed all programs took at the last look."""
        self._sleep = sleep
        self._clock = clock
        self._began = clock()
        self._due = self._began
        self.yardstick: Program | None = None
        self.seconds = 0.0
        """The undisturbed time of the yardstick."""
        self._limit = LEAST
        self._waited = 0.0
        self.scale = 1.0
        """How many times as long as undisturbed the machine took at the last look."""
        self.unit = 1.0
        """How many times as long as undisturbed the machine took at first."""

    def begin(self, program: Program, outcome: Outcome) -> None:
        """Make the program the yardstick, if there is none; the machine is now as it was at first."""
        if self.yardstick is None and outcome.seconds is not None:
            self._take(program, outcome, outcome.seconds)
            for one in (self._memory, self._computing):
                if one is not None:
                    one.begin()

    def follow(self, program: Program, outcome: Outcome) -> Outcome | None:
        """Make a faster program the yardstick, while the machine is undisturbed. Returns its outcome if it was run again.

        If its times do not agree, one of them was disturbed, and the yardstick remains.
        """
        seconds = outcome.seconds
        if seconds is None or not self.calm or (1.0 + self._limit) * seconds > self.seconds:
            return None
        again = self.again(program)
        if again.seconds is not None and self._same(seconds, again.seconds):
            self._take(program, again, again.seconds if outcome.scale != 1.0 else min(seconds, again.seconds))
        return again

    def _take(self, program: Program, outcome: Outcome, seconds: float) -> None:
        self.yardstick, self.seconds = program, seconds
        low, high = np.quantile(outcome.times or (seconds,), (0.25, 0.75))
        self._limit = max(LEAST, SPREADS * float(high / low - 1.0))
        if self._memory is not None and self._moving:
            self._memory.share = min(1.0, self._moving / seconds)

    @property
    def calm(self) -> bool:
        """Whether the machine was undisturbed at the last look."""
        return self.scale == 1.0 and self.memory == 1.0

    @property
    def memory(self) -> float:
        """How many times as long as undisturbed memory took at the last look; 1 without its yardstick."""
        return 1.0 if self._memory is None else self._memory.scale

    @property
    def due(self) -> bool:
        """Whether looks so far took a small share of the time."""
        return self._clock() >= self._due

    def look(self, told: Callable[[float], None]) -> Look:
        """The speed of the machine. If it is slower than before, `told` is called with the factor, and the search waits for
        a while; the total of such waits is limited."""
        began, before = self._clock(), (self.scale, self.memory)
        now, waited = self._factors(before, BRIEF * self.seconds), 0.0
        if not self._alike(now, before):
            looks = [self._factors(before) for _ in range(LOOKS)]
            now = (
                self._nearest([one[0] for one in looks], before[0]),
                self._nearest([one[1] for one in looks], before[1]),
            )
        same = self._alike(now, before)
        worst = max(*now, *before)
        if not same and self._slower(now, before):
            told(max(now))
            now, waited = self._wait(now)
        ended = self._clock()
        self._due = ended + SHARE * (ended - began - waited)
        if same:
            return Look(self._common, self._common, max(before), True, memory=before[1])
        revised, factor, was = 1.0, now[0], self._common
        if factor < 1.0 and not self._same(factor, 1.0):
            revised = 1.0 / factor
            self.seconds *= factor
            self.unit *= revised
        self.scale = 1.0 if factor < 1.0 or self._same(factor, 1.0) else factor
        unseen = 1.0 if self._memory is None else self._memory.settle(now[1])
        self._common = self._shared()
        worst = max(worst, *now) * max(revised, unseen)
        return Look(was * revised, self._common, worst, False, waited, revised, self.memory, unseen)

    def _shared(self) -> float:
        """What all programs are slower by: what the yardstick is, unless that may be its memory."""
        if self.memory == 1.0 or self.scale == 1.0:
            return self.scale
        if self._computing is None:
            return 1.0
        self._computing.settle(self._computing.factor())
        return min(self.scale, self.memory, self._computing.scale)

    @staticmethod
    def _nearest(looks: Sequence[float], before: float) -> float:
        return max(min(looks), min(before, max(looks)))

    def rested(self, patient: bool = True) -> float:
        """How many times slower than undisturbed memory is now; if it is slower, and there is time, after waiting for it."""
        if self._memory is None or self.yardstick is None:
            return 1.0
        now = self._memory.factor()
        if self._memory.same(now, 1.0) or now < 1.0:
            now = 1.0
        elif patient:
            (_, now), _ = self._wait((1.0, now))
        self._memory.settle(now)
        self._common = self._shared()
        return self.memory

    def beside(self, outcome: Outcome) -> float:
        """How many times as long as undisturbed all programs took beside this outcome of the yardstick; 1 if as long."""
        if self.memory != 1.0:
            return self._common
        if outcome.seconds is None or not self.seconds:
            return 1.0
        factor = outcome.seconds / self.seconds
        return factor if factor > 1.0 and not self._same(factor, 1.0) else 1.0

    def corrected(self, outcome: Outcome, factor: float) -> Outcome:
        """The outcome, as measured at a moment at which the machine took `factor` times as long as at first.

        A factor that would make the time shorter than the machine allows is wrong for this program: its time remains as it
        was measured. No time is divided by more than a limit.
        """
        measured = replace(
            outcome, seconds=None if outcome.seconds is None else outcome.seconds * outcome.scale, scale=1.0
        )
        factor = min(factor, LARGEST)
        if measured.seconds is None or factor == 1.0 or measured.seconds / factor < self._least():
            return measured
        return replace(measured, seconds=measured.seconds / factor, scale=factor)

    def _wait(self, now: tuple[float, float]) -> tuple[tuple[float, float], float]:
        """Wait until the machine is as fast as at first, as long as there is time. Returns the factors then, and the wait."""
        waited, pauses = 0.0, iter(PAUSES)
        pause = next(pauses)
        searched = self._clock() - self._began - self._waited
        left = min(PATIENCE, searched) - self._waited
        while left > 0.0 and self._slower(now, (1.0, 1.0)):
            self._sleep(pause := min(pause, left))
            waited, left = waited + pause, left - pause
            now, pause = self._factors(now), next(pauses, PAUSES[-1])
        self._waited += waited
        return now, waited

    def _factors(self, otherwise: tuple[float, float], best: float | None = None) -> tuple[float, float]:
        """How many times as long as undisturbed the yardsticks take; `otherwise` without one, or where it fails."""
        factor, memory = otherwise
        if self.yardstick is not None and (now := self.again(self.yardstick, best).seconds) is not None:
            factor = now / self.seconds
        if self.yardstick is not None and self._memory is not None:
            memory = self._memory.factor()
        return factor, memory

    def _alike(self, one: tuple[float, float], other: tuple[float, float]) -> bool:
        return self._same(one[0], other[0]) and (self._memory is None or self._memory.same(one[1], other[1]))

    def _slower(self, one: tuple[float, float], other: tuple[float, float]) -> bool:
        """Whether one of the yardsticks is slower than with the other factors."""
        return (one[0] > other[0] and not self._same(one[0], other[0])) or (
            self._memory is not None and one[1] > other[1] and not self._memory.same(one[1], other[1])
        )

    def _same(self, one: float, other: float) -> bool:
        return max(one, other) <= (1.0 + self._limit) * min(one, other)


COPIES = 3
"""The fastest of so many copies is the time of the yardstick of memory. They are of one thread, which feels a neighbour, too,
and take milliseconds, where measuring the bandwidth takes half a second."""


@frozen
class Resources:
    """The yardsticks of a task that are no candidates: the seconds of a unit of work; None without one.

    Kernels on arrays that fit into caches of their own cores do not feel how fast memory is; nor is a GPU's shared.
    """

    memory: Callable[[], float] | None = None
    computing: Callable[[], float] | None = None

    @staticmethod
    def of(target: Target, threads: int, roof: Roof, turns: Turns) -> Resources:
        """Those of a task with this roof; they take turns with other processes that time kernels."""
        if target.device or roof.bytes_ <= threads * target.l2:
            return Resources()
        backend = require_backend(target.kind, "the roof")
        half = min(roof.bytes_, LARGEST_MOVED * target.l3) // 2

        @cache
        def arrays() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
            return np.ones(half, np.uint8), np.ones(half, np.uint8)

        def memory() -> float:
            source, into = arrays()
            seconds: list[float] = []
            with turns.use(Use.TIMING):
                for _ in range(COPIES):
                    began = time.perf_counter()
                    np.copyto(into, source)
                    seconds.append(time.perf_counter() - began)
            return min(seconds)

        def computing() -> float:
            with turns.use(Use.TIMING):
                return 1.0 / backend.peak(roof.title, target, threads)

        return Resources(memory, computing if roof.title else None)


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

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome | Late]:
        for program, outcome in zip(programs, self._runner.measure(programs, best), strict=True):
            yield outcome if isinstance(outcome, Late) else self._held(program, outcome)

    @property
    def lanes(self) -> int:
        """How many programs its runner times at once."""
        return self._runner.lanes if isinstance(self._runner, Concurrent) else 1

    @property
    def open(self) -> int:
        """How many programs have no outcome yet; none of those of a runner that is waited for."""
        return self._runner.open if isinstance(self._runner, Concurrent) else 0

    def pump(self) -> None:
        if isinstance(self._runner, Concurrent):
            self._runner.pump()

    def late(self, wait: bool = False) -> list[tuple[Program, Outcome]]:
        """The outcomes that its runner held back."""
        found = self._runner.late(wait) if isinstance(self._runner, Concurrent) else []
        return [(program, self._held(program, outcome)) for program, outcome in found]

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
