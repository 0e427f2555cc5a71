"""A queue of trials for the database: a trial that cannot be written now is retried with the next one, so that none is lost
while the run lasts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.records.database import Database, Measured, default_path, stamped
from tensorc_dsl.records.errors import is_disk_full
from tensorc_dsl.records.keys import Subject
from tensorc_dsl.records.ranking import Kept
from tensorc_dsl.records.trial import Trial
from tensorc_dsl.trace.draw import Decision


@dataclass(frozen=True, slots=True)
class Unkept:
    """Trials that could not be written to a database, with the reason."""

    trials: tuple[Trial, ...]
    why: tuple[Diagnostic, ...]

    def __str__(self) -> str:
        """`4 records could not be kept: trials 3 to 5, and of the comparison at the end 4`; trials are counted from 1."""
        parts = [
            f"{before}{'trial' if len(numbers) == 1 else 'trials'} {_ranges(numbers)}"
            for phase, before in _PHASES
            if (numbers := sorted(t.trial + 1 for t in self.trials if t.phase == phase))
        ]
        many = "1 record" if len(self.trials) == 1 else f"{len(self.trials)} records"
        return f"{many} could not be kept: {', and '.join(parts)}"

    def waiting(self) -> str:
        """The message about trials that may still be written."""
        why = "; ".join(d.message for d in self.why)
        return f"records wait, and are offered again with each trial: {why}"


_PHASES = (("trial", ""), ("again", "measured again "), ("final", "in the comparison at the end "))


class Queue:
    """Use it in a `with`. `opened` opens the database, which is closed at the end.

    With `tried`, which raises TschedError if `opened` would, the database is opened with the first record.
    """

    def __init__(self, opened: Callable[[], Database], tried: Callable[[], None] | None = None) -> None:
        """Raises TschedError as `opened` or `tried` does, but for a full disk: there, it is opened later."""
        self._opened = opened
        self._database: Database | None = None
        self._waiting: list[Trial] = []
        self._subjects: list[Subject] = []
        self._problem: TschedError | None = None
        self._told: tuple[Diagnostic, ...] = ()
        try:
            if tried is None:
                self._database = opened()
            else:
                tried()
        except TschedError as e:
            if not is_disk_full(e):
                raise
            self._problem = e

    @staticmethod
    def at(path: Path | None) -> Queue:
        """Into the database in that file, by default the user's. A missing file is made with the first record.

        Raises TschedError as `Database.open` does.
        """
        path = (path or default_path()).expanduser()
        missing = not os.path.lexists(path)
        return Queue(partial(Database.open, path), partial(Database.require_place, path) if missing else None)

    def introduce(self, subject: Subject) -> None:
        """Set the subject of the trials that follow. It is recorded with the first of them."""
        self._subjects.append(subject)

    def add_all(self, trials: Iterable[Trial]) -> None:
        """Write the trials to disk, or queue them behind those that wait. An empty list makes no database."""
        self._waiting += stamped(trials)
        if self._database is None and self._problem is None and not self._waiting:
            return
        try:
            self._database = self._database or self._opened()
            self._database.add_all(self._waiting, self._subjects)
        except TschedError as e:
            self._problem = e
        else:
            self._waiting, self._subjects, self._problem, self._told = [], [], None, ()

    def kept(self, task_key: str, target_key: str) -> Iterator[Kept]:
        """The records of a task on a target that are on disk, in the order they were made."""
        return iter(()) if self._database is None else self._database.of(task_key, target_key)

    def others(self, task_key: str, target_key: str, columns: str, before: float) -> Iterator[Measured]:
        """The recorded trials of other tasks; see `Database.others`."""
        return iter(()) if self._database is None else self._database.others(task_key, target_key, columns, before)

    def best_decisions(self, task_key: str, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """The best schedules of other tasks; see `Database.best_decisions`."""
        return [] if self._database is None else self._database.best_decisions(task_key, target_key, before)

    @property
    def unkept(self) -> Unkept | None:
        """The trials that wait; None if none waits and the database is open."""
        return Unkept(tuple(self._waiting), self._problem.diagnostics) if self._problem is not None else None

    def untold(self) -> Unkept | None:
        """`unkept`, but None if it was returned before for the same reason."""
        unkept = self.unkept
        if unkept is None or unkept.why == self._told:
            return None
        self._told = unkept.why
        return unkept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if self._database is not None:
            self._database.close()


def _ranges(numbers: list[int]) -> str:
    """`1 to 3, 7`."""
    found = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda x: x[1] - x[0])]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in found)
