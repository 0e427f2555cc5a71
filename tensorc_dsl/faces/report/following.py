"""Shows the progress of a search, or of several as one: a line that is updated on a terminal, or occasional lines
elsewhere.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Protocol, TextIO

from tensorc_dsl.faces.report.progress import SLOW_BUILD, Row, Standing
from tensorc_dsl.faces.report.terminal import follow, is_dumb
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.search.events import Event, Exhausted, Finished, Listener, Measured, Proposed, Started

# Shows the progress of a search: one line that is updated on a terminal, or occasional lines elsewhere.


PLAIN_SECONDS = 5.0
"""Without a terminal, a line is printed at least this often, one for each improvement after `PAUSE`, and one for each
slow build."""

PAUSE = 0.5


class Follower(Protocol):
    """Shows events of a search, and lines between them."""

    def __call__(self, event: Event) -> None: ...

    def begin(self, line: str) -> None:
        """Show the beginning of work for which the search sends no events."""
        ...

    def turn(self, number: int) -> None:
        """The events that follow are of this task, of several."""
        ...


def watched(out: TextIO | None) -> bool:
    """Whether a person watches the stream: it is a terminal, or this is a notebook."""
    return out is not None and (out.isatty() or _in_notebook())


def _in_notebook() -> bool:
    """Whether this is a notebook, whose output goes into the cell."""
    if "ipykernel" not in sys.modules:
        return False  # notebooks load ipykernel, so rich need not be imported

    from rich.console import Console

    return Console().is_jupyter


def _has_widgets() -> bool:
    """Whether a line can be overwritten in a cell, which takes a widget. One that cannot be loaded is none."""
    try:
        import_module("ipywidgets")
    except ImportError:
        return False
    return True


@contextmanager
def show_progress(standing: Standing, out: TextIO | None) -> Generator[Follower, None, None]:
    """A context in which the search is shown on `out`, or in the cell of a notebook.

    Without an output, such as a standard error that was closed at the start, nothing is shown.
    """
    out = out or io.StringIO()
    if (out.isatty() and not is_dumb()) or (_in_notebook() and _has_widgets()):
        from tensorc_dsl.faces.report.live import on_terminal  # only where there is one

        with on_terminal(standing, out) as follower:
            yield follower
    else:
        yield _Lines(standing, out)


class _Lines:
    """Plain lines, few enough for a log."""

    def __init__(self, standing: Standing, out: TextIO) -> None:
        self._standing = standing
        self._out = out
        self._shown_at = standing.clock()
        self._shown_best: float | None = None

    def begin(self, line: str) -> None:
        self._standing.enter()
        follow(line, self._out)

    def turn(self, number: int) -> None:
        self._standing.turn(number)
        follow(f"{self._standing.tasks[number].name}:", self._out)

    def __call__(self, event: Event) -> None:
        s = self._standing
        line = s.take(event)
        if line is not None:
            follow(line, self._out)
        if isinstance(event, Measured):
            pause = PAUSE if s.best != self._shown_best else PLAIN_SECONDS
            slow = event.outcome.build_seconds >= SLOW_BUILD
            if slow or s.clock() - self._shown_at >= pause or s.done == s.trials:
                self._shown_at, self._shown_best = s.clock(), s.best
                follow(s.text(), self._out)


# Shows several searches as one: trials are counted over all of them, and the current task is named.


class Together:
    """Passes the events of several searches to one follower. The events of a single search are passed unchanged."""

    def __init__(
        self, standing: Standing, follower: Follower, roofs: Sequence[Roof], names: Sequence[str], trials: int
    ) -> None:
        self._standing = standing
        self._follower = follower
        self._total = trials * len(names)
        self._done = 0
        standing.roof = roofs[0]
        if len(names) > 1:
            standing.tasks = [Row(name, roof) for name, roof in zip(names, roofs, strict=True)]

    def listener(self, number: int) -> Listener:
        """The listener for the search of that number."""
        return self._follower if not self._standing.tasks else lambda event: self._take(number, event)

    def _take(self, number: int, event: Event) -> None:
        if number != self._standing.task and not isinstance(event, Started | Finished):
            self._follower.turn(number)
        self._standing.tasks[number].take(event)
        match event:
            case Started():
                self._follower(replace(event, trials=self._total))
            case Measured():
                self._done += 1
                self._follower(replace(event, trial=self._done - 1))
            case Exhausted() | Proposed():
                pass  # the end or beginning of one search, not of all
            case _:
                self._follower(event)
