"""Shows a search on a terminal: one line that rich keeps up to date, below the lines of finished work.

Of several searches each has such a line of its own above it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.report.progress import Standing, shown
from tensorc_dsl.tuning.search.events import Event

BAR, BAR_FROM = 24, 140
"""The width of the bar, and the least width of a terminal with a bar."""


class Line:
    """The state of the search in one line of the terminal's width: a bar if there is room, and text. Tasks are above it."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        s, width = self._standing, options.max_width
        if s.tasks:
            for line in shown(s.tasks, s.task, width, max(2, console.height // 2)):
                yield _one_line(line)
        if width < BAR_FROM or not s.counting:
            yield _one_line(s.fitting(width))
            return
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=s.trials, completed=s.done, width=BAR), _one_line(s.fitting(width - BAR - 2)))
        yield row


def _one_line(text: str) -> Text:
    return Text(visible_line(text), no_wrap=True, overflow="ellipsis")


class Terminal:
    """Shows events on a terminal."""

    def __init__(self, standing: Standing, live: Live) -> None:
        self._standing = standing
        self._live = live
        live.update(Line(standing))

    def begin(self, line: str) -> None:
        self._standing.enter()
        self._say(line)
        self._live.refresh()

    def turn(self, number: int) -> None:
        self._standing.turn(number)
        self._live.refresh()

    def __call__(self, event: Event) -> None:
        line = self._standing.take(event)
        if line is not None:
            s = self._standing
            self._say(line if s.task is None else f"{s.tasks[s.task].name}: {line}")
        self._live.refresh()

    def _say(self, line: str) -> None:
        self._live.console.print(visible_line(line), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def on_terminal(standing: Standing, out: TextIO) -> Generator[Terminal, None, None]:
    """A context in which the search is shown on the terminal `out`; the line is removed at its end."""
    console = Console(file=out)
    # A widget takes all that the cell shows meanwhile, whichever thread shows it: there, no other one does.
    with Live(console=console, transient=True, refresh_per_second=8, auto_refresh=not console.is_jupyter) as live:
        yield Terminal(standing, live)
