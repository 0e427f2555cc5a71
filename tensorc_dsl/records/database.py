"""The database of trials: one SQLite file that several runs may add to at once. Rows are added, never changed.

Writers take a file lock, so that two runs queue in turn instead of failing on SQLite's own lock; readers need none (the
journal is a write-ahead log). A row belongs to one task on one target, and no query for rows crosses either: a time
measured on one machine says nothing about another.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock
from platformdirs import user_data_path

from tensorc_dsl.records import errors
from tensorc_dsl.records.errors import Passed
from tensorc_dsl.records.files import for_reading, look
from tensorc_dsl.records.rows import READ, BadRow, from_row, to_row
from tensorc_dsl.records.schema import COLUMNS, create, is_empty, verify_schema, write_again
from tensorc_dsl.records.trial import Trial

LOCK_SECONDS = 60.0
"""How long a writer waits for another; one holds the lock for milliseconds."""


def default_path() -> Path:
    """Where records go unless told otherwise: the user's data folder."""
    return user_data_path("tensorc-dsl", appauthor=False) / "records.sqlite"


def package_version() -> str:
    """The installed version; "unknown" when the package runs from a bare source tree."""
    try:
        return metadata.version("tensorc-dsl")
    except metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The rows of the valid trials of a task on a target, one for each program, fastest first; and what is none."""

    rows: tuple[int, ...]
    passed: tuple[Passed, ...]


class Database:
    """An open database. Use `Database.open`, or `Database.reading` to change nothing; close it or use it in a `with`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, wait: float, open_: ExitStack) -> None:
        self.path = path
        self._connection = connection
        self._open = open_
        self._wait = wait
        self._lock = FileLock(f"{path}.lock", timeout=wait)
        self._version = package_version()

    @classmethod
    def open(cls, path: Path | None = None, *, wait: float = LOCK_SECONDS) -> Database:
        """Open the file, making it and its folder when they are missing. Raises TschedError (E0701 … E0705).

        What is no database of records is left as it was, and nothing is made beside it.
        """
        path = (path or default_path()).expanduser()
        with errors.explained(path, wait):
            look(path, wait)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit: each statement stands alone and `add_all` groups what belongs together.
            with ExitStack() as stack:
                connection = stack.enter_context(closing(sqlite3.connect(path, timeout=wait, isolation_level=None)))
                with FileLock(f"{path}.lock", timeout=wait):
                    if is_empty(connection):
                        create(connection)
                    verify_schema(connection, path)
                    write_again(connection)
                return cls(path, connection, wait, stack.pop_all())

    @classmethod
    def reading(cls, path: Path | None = None, *, wait: float = LOCK_SECONDS) -> Database | None:
        """The database in the file, to be read only; None where there are no records. Nothing need be writable.

        Raises TschedError (E0701, E0702, E0705, E0708).
        """
        path = (path or default_path()).expanduser()
        with errors.explained(path, wait, reading=True), ExitStack() as stack:
            if not path.exists():
                return None
            look(path, wait)
            connection = stack.enter_context(for_reading(path, wait))
            if is_empty(connection):
                return None
            verify_schema(connection, path)
            return cls(path, connection, wait, stack.pop_all())

    def add(self, trial: Trial) -> None:
        """The trial is on disk afterwards, stamped with the time and the version; or TschedError and none of it is."""
        self.add_all((trial,))

    def add_all(self, trials: Iterable[Trial]) -> None:
        """All of the trials are recorded in one transaction, or none."""
        now = time.time()
        rows = [to_row(t, now, self._version) for t in trials]
        marks = ", ".join("?" * (COLUMNS.count(",") + 1))
        with errors.explained(self.path, self._wait), self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(f"INSERT INTO trials ({COLUMNS}) VALUES ({marks})", rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _rows(self, task_key: str, target_key: str) -> Iterator[tuple[int, Trial | BadRow]]:
        query = f"SELECT id, {READ} FROM trials WHERE task_key = ? AND target_key = ? ORDER BY id"
        with errors.explained(self.path, self._wait):
            for number, *row in self._connection.execute(query, (task_key, target_key)):
                try:
                    yield number, from_row(tuple(row))
                except BadRow as e:
                    yield number, e

    def trials(self, task_key: str, target_key: str) -> tuple[Trial, ...]:
        """Every trial of that task on that target, in the order they were recorded. TschedError (E0702) for a damaged one."""
        found: list[Trial] = []
        for number, t in self._rows(task_key, target_key):
            if isinstance(t, BadRow):
                raise errors.not_records(self.path, f"row {number} cannot be read: {t}")
            found.append(t)
        return tuple(found)

    def trial(self, row: int) -> Trial:
        """The trial of a row that a ranking named."""
        with errors.explained(self.path, self._wait):
            return from_row(self._connection.execute(f"SELECT {READ} FROM trials WHERE id = ?", (row,)).fetchone())

    def ranking(self, task_key: str, target_key: str) -> Ranking:
        """The valid trials of that task on that target.

        Where a program was measured again as a finalist, that time speaks for it: the smallest of many first looks is
        too good to be true more often than not. A program that failed as a finalist is out.
        """
        finals: dict[str, tuple[float, int]] = {}
        firsts: dict[str, tuple[float, int]] = {}
        failed: set[str] = set()
        passed: list[Passed] = []
        for number, t in self._rows(task_key, target_key):
            if isinstance(t, BadRow):
                passed.append(Passed(number, str(t)))
            elif t.seconds is not None:
                held = finals if t.phase == "final" else firsts
                held[t.program_key] = min(held.get(t.program_key, (t.seconds, number)), (t.seconds, number))
            elif t.phase == "final":
                failed.add(t.program_key)
        valid = sorted(place for key, place in (firsts | finals).items() if key not in failed)
        return Ranking(tuple(number for _, number in valid), tuple(passed))

    def best(self, task_key: str, target_key: str) -> Trial | None:
        """The fastest valid trial of that task on that target; None when there is none."""
        return next(map(self.trial, self.ranking(task_key, target_key).rows), None)

    def tasks(self) -> tuple[tuple[str, str, str, int], ...]:
        """(task, task_key, target_key, number of trials) for each task on each target, sorted."""
        query = "SELECT task, task_key, target_key, count(*) FROM trials GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        with errors.explained(self.path, self._wait):
            return tuple((str(a), str(b), str(c), int(n)) for a, b, c, n in self._connection.execute(query))

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
