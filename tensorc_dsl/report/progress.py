"""A search as it goes: one line that is kept up to date on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO, assert_never

from tensorc_dsl.report import units
from tensorc_dsl.report.table import tally
from tensorc_dsl.report.terminal import follow
from tensorc_dsl.search.events import Event, Finished, Listener, Measured, Proposed, Started
from tensorc_dsl.visible import visible_line

PLAIN_SECONDS = 5.0
"""Where nothing can be overwritten: a line at least this often, and one for each improvement after `PAUSE`."""

PAUSE = 0.5


@dataclass(slots=True)
class Standing:
    """Where a search stands. `flops` is the work of one call; `peak` is in FLOP/s."""

    flops: int
    peak: float
    clock: Callable[[], float] = time.perf_counter
    trials: int = 0
    done: int = 0
    current: str = ""
    best: float | None = None
    failures: Counter[str] = field(default_factory=Counter[str])
    _started: float = 0.0

    def take(self, event: Event) -> None:
        match event:
            case Started(trials=trials):
                self.trials = trials
                self._started = self.clock()
            case Measured(trial=trial, outcome=outcome, best_seconds=best):
                self.done = trial + 1
                self.best = best
                if outcome.seconds is None:
                    self.failures[outcome.status] += 1
                    self.current = outcome.status.replace("_", " ")
                else:
                    self.current = units.seconds(outcome.seconds)
            case Proposed() | Finished():
                pass
            case _:
                assert_never(event)

    def left(self) -> float | None:
        """Seconds that the rest will take at the pace so far."""
        if not self.done:
            return None
        return (self.clock() - self._started) / self.done * (self.trials - self.done)

    def text(self) -> str:
        """`now 1.42 ms, best 1.31 ms (205 GFLOP/s, 93 % of peak), 2 timeout, 14.0 s left`."""
        parts = [f"now {self.current}"] if self.current else ["starting"]
        if self.best is not None:
            rate = self.flops / self.best
            parts.append(
                f"best {units.seconds(self.best)} ({units.gflops(rate)} GFLOP/s, {units.share(rate / self.peak)} of peak)"
            )
        if self.failures:
            parts.append(tally(dict(self.failures)))
        left = self.left()
        if left is not None and self.done < self.trials:
            parts.append(f"{units.seconds(left)} left")
        return ", ".join(parts)


@contextmanager
def following(standing: Standing, out: TextIO) -> Generator[Listener, None, None]:
    """A listener that shows the search on `out` while the context is open."""
    if out.isatty():
        with _bar(standing, out) as listener:
            yield listener
    else:
        yield _Lines(standing, out)


class _Lines:
    """Plain lines, few enough for a log."""

    def __init__(self, standing: Standing, out: TextIO) -> None:
        self._standing = standing
        self._out = out
        self._shown_at = standing.clock()
        self._shown_best: float | None = None

    def __call__(self, event: Event) -> None:
        s = self._standing
        s.take(event)
        if isinstance(event, Measured):
            pause = PAUSE if s.best != self._shown_best else PLAIN_SECONDS
            if s.clock() - self._shown_at >= pause or s.done == s.trials:
                self._shown_at, self._shown_best = s.clock(), s.best
                follow(f"[{s.done}/{s.trials}] {s.text()}", self._out)


@contextmanager
def _bar(standing: Standing, out: TextIO) -> Generator[Listener, None, None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False),
        console=Console(file=out), transient=True,
    ) as progress:  # fmt: skip
        row = progress.add_task("starting", total=None)

        def listen(event: Event) -> None:
            standing.take(event)
            progress.update(
                row, total=standing.trials, completed=standing.done, description=visible_line(standing.text())
            )

        yield listen
