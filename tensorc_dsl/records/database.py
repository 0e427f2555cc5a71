"""The database of trials: one SQLite file that several runs may add to at once. Rows are added, never changed.

Writers take a file lock, so that two runs queue in turn instead of failing on SQLite's own lock; readers need none (the
journal is a write-ahead log). A row belongs to one task on one target, and no query for rows crosses either: a time
measured on one machine says nothing about another.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock
from platformdirs import user_data_path

from tensorc_dsl.records import errors
from tensorc_dsl.records.trial import Trial, decode_decisions, decode_times, encode_decisions, encode_times

SCHEMA_VERSION = 1
APPLICATION_ID = 0x75C4ED01
"""Marks the file as ours in SQLite's header, so that another program's database is never written to."""

LOCK_SECONDS = 60.0
"""How long a writer waits for another; one holds the lock for milliseconds."""

_COLUMNS = (
    "task_key, target_key, task, strategy, seed, trial, status, decisions, trace, program_key, seconds, times, "
    "message, max_error, build_seconds, run_seconds, phase, created, version"
)

_SCHEMA = """
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    task_key TEXT NOT NULL, target_key TEXT NOT NULL, task TEXT NOT NULL,
    strategy TEXT NOT NULL, seed INTEGER NOT NULL, trial INTEGER NOT NULL,
    status TEXT NOT NULL, decisions TEXT NOT NULL, trace TEXT NOT NULL, program_key TEXT NOT NULL,
    seconds REAL, times TEXT NOT NULL, message TEXT NOT NULL, max_error REAL,
    build_seconds REAL NOT NULL, run_seconds REAL NOT NULL, phase TEXT NOT NULL,
    created REAL NOT NULL, version TEXT NOT NULL,
    CHECK ((status = 'ok') = (seconds IS NOT NULL))
) STRICT;
CREATE INDEX trials_by_task ON trials (task_key, target_key);
"""


def default_path() -> Path:
    """Where records go unless told otherwise: the user's data folder."""
    return user_data_path("tensorc-dsl", appauthor=False) / "records.sqlite"


def package_version() -> str:
    """The installed version; "unknown" when the package runs from a bare source tree."""
    try:
        return metadata.version("tensorc-dsl")
    except metadata.PackageNotFoundError:
        return "unknown"


class Database:
    """An open database. Use `Database.open`; close it or use it in a `with`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, wait: float) -> None:
        self.path = path
        self._connection = connection
        self._wait = wait
        self._lock = FileLock(f"{path}.lock", timeout=wait)
        self._version = package_version()

    @classmethod
    def open(cls, path: Path | None = None, *, wait: float = LOCK_SECONDS) -> Database:
        """Open the file, making it and its folder when they are missing. Raises TschedError (E0701 … E0705)."""
        path = (path or default_path()).expanduser()
        with errors.explained(path, wait):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise errors.unwritable(path, "it is a folder")
            # Autocommit: each statement stands alone and `_write` groups what belongs together.
            connection = sqlite3.connect(path, timeout=wait, isolation_level=None)
            try:
                database = cls(path, connection, wait)
                with database._lock:
                    database._prepare()
            except BaseException:
                connection.close()
                raise
        return database

    def _prepare(self) -> None:
        """Leave a file of the current format, or raise and leave the file as it was."""
        version = self._pragma("user_version")
        application = self._pragma("application_id")
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == 0 and version == 0 and tables == 0:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
                f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
        elif application != APPLICATION_ID:
            raise errors.not_records(self.path, "it is another program's SQLite database")
        elif version > SCHEMA_VERSION:
            raise errors.newer_schema(self.path, version, SCHEMA_VERSION)
        self._connection.execute(f"SELECT {_COLUMNS} FROM trials LIMIT 1").fetchone()

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def add(self, trial: Trial) -> None:
        """The trial is on disk afterwards, stamped with the time and the version; or TschedError and none of it is."""
        self.add_all((trial,))

    def add_all(self, trials: Iterable[Trial]) -> None:
        """All of the trials are recorded in one transaction, or none."""
        now = time.time()
        rows = [_to_row(t, now, self._version) for t in trials]
        marks = ", ".join("?" * (_COLUMNS.count(",") + 1))
        with errors.explained(self.path, self._wait), self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(f"INSERT INTO trials ({_COLUMNS}) VALUES ({marks})", rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def trials(self, task_key: str, target_key: str) -> tuple[Trial, ...]:
        """Every trial of that task on that target, in the order they were recorded."""
        query = f"SELECT {_COLUMNS} FROM trials WHERE task_key = ? AND target_key = ? ORDER BY id"
        with errors.explained(self.path, self._wait):
            return tuple(_from_row(r) for r in self._connection.execute(query, (task_key, target_key)))

    def best(self, task_key: str, target_key: str) -> Trial | None:
        """The fastest valid trial of that task on that target; None when there is none.

        Where a program was measured again as a finalist, that time speaks for it: the smallest of many first looks is
        too good to be true more often than not. A program that failed as a finalist is out.
        """
        finals: dict[str, Trial] = {}
        firsts: dict[str, Trial] = {}
        failed: set[str] = set()
        for t in self.trials(task_key, target_key):
            if t.seconds is not None:
                held = finals if t.phase == "final" else firsts
                if t.program_key not in held or t.seconds < (held[t.program_key].seconds or 0.0):
                    held[t.program_key] = t
            elif t.phase == "final":
                failed.add(t.program_key)
        valid = [t for key, t in (firsts | finals).items() if key not in failed]
        return min(valid, key=lambda t: (t.seconds, t.trace), default=None)

    def tasks(self) -> tuple[tuple[str, str, str, int], ...]:
        """(task, task_key, target_key, number of trials) for each task on each target, sorted."""
        query = "SELECT task, task_key, target_key, count(*) FROM trials GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        with errors.explained(self.path, self._wait):
            return tuple((str(a), str(b), str(c), int(n)) for a, b, c, n in self._connection.execute(query))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _to_row(t: Trial, now: float, version: str) -> tuple[Any, ...]:
    return (
        t.task_key, t.target_key, t.task, t.strategy, t.seed, t.trial, t.status, encode_decisions(t.decisions),
        t.trace, t.program_key, t.seconds, encode_times(t.times), t.message, t.max_error, t.build_seconds,
        t.run_seconds, t.phase, now, version,
    )  # fmt: skip


def _from_row(row: tuple[Any, ...]) -> Trial:
    values = list(row)
    values[7] = decode_decisions(values[7])
    values[11] = decode_times(values[11])
    return Trial(*values)
