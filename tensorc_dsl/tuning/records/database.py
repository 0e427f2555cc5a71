"""The database of trials: one SQLite file to which several runs may add rows at once. Rows are never changed.

An invalid file is not changed, and readers need no right to write. Below the database: the ranking of its records, and the
queue of trials that could not be written yet.
"""

from __future__ import annotations

import math
import os
import sqlite3
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import metadata
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from filelock import FileLock
from platformdirs import user_data_path

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.records import errors
from tensorc_dsl.tuning.records.errors import HEADER, MAGIC, Passed, is_disk_full, is_marked
from tensorc_dsl.tuning.records.schema import (
    COLUMNS,
    CONTENT,
    EARLIER,
    LARGEST,
    MAX_TEXT,
    READ,
    SCHEMA_VERSION,
    SHORTEST,
    BadRow,
    create,
    database_format,
    from_row,
    is_empty,
    migrate,
    row_digest,
    to_row,
    verify_schema,
    write_again,
)
from tensorc_dsl.tuning.records.trial import (
    Machine,
    Subject,
    Trial,
    as_measured,
    decode_decisions,
    decode_times,
    digest,
    worker_of,
)

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)

_COPIES = 5
"""How often a copy is tried while another process writes."""


def require_database_path(path: Path, wait: float) -> None:
    """Raises TschedError (E0702, E0703, E0715) if the path cannot be a database of ours. No file is made or changed."""
    try:
        mode = path.stat()
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode.st_mode):
        raise errors.unwritable(path, "it is a folder")
    for is_kind, kind in _KINDS:
        if is_kind(mode.st_mode):
            raise errors.not_records(path, f"it is {kind}")
    with path.open("rb") as file:
        head = file.read(HEADER)
    if not head:
        return
    if not head.startswith(MAGIC):
        raise errors.not_records(path, "file is not a database")
    if is_marked(head):
        return
    # Another program's, or one that a process of ours begins just now: then it is empty, or its log has the rest.
    logged = _log(path).exists()
    with closing(_connect(path, "mode=ro" if logged else "mode=ro&immutable=1", wait)) as connection:
        if not logged and not is_empty(connection):
            raise errors.not_records(path, "it is another program's SQLite database")


def try_place(path: Path) -> None:
    """Raises OSError if the folder of the path, or the one in which it would be made, takes no new file as large as an empty
    database; nothing is left there."""
    folder = next(p for p in path.absolute().parents if p.exists())
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(errors.LEAST))


@contextmanager
def for_reading(path: Path, wait: float) -> Generator[sqlite3.Connection]:
    """A connection that reads all records and writes nothing; the file and its folder may be read-only."""
    try:
        connection = _connect(path, "mode=ro", wait)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as e:
        # SQLite keeps an index beside the file for as long as it reads, which a folder or a full disk may not allow.
        if e.sqlite_errorcode & 0xFF not in _NO_INDEX:
            raise
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(_copied(path))
    with closing(connection):
        yield connection


_NO_INDEX = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _connect(path: Path, options: str, wait: float) -> sqlite3.Connection:
    # Autocommit: each statement stands alone and writers group what belongs together.
    return sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, timeout=wait, isolation_level=None)


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _copied(path: Path) -> bytes:
    """The database with all that its log has committed, as a database without a log."""
    for _ in range(_COPIES):
        before = _state(path)
        data = path.read_bytes()
        log = _log(path).read_bytes() if _log(path).exists() else b""
        if _state(path) == before:
            return without_log(data, log)
    raise TimeoutError


_JOURNAL = slice(18, 20)
"""The bytes of the header that say whether there is a log: 2 and 2, else 1 and 1."""

_ORDERS = {0x377F0682: "<", 0x377F0683: ">"}
"""The order of the bytes in the checksums of a log by the number at its start."""


def without_log(data: bytes, log: bytes) -> bytes:
    """The pages of a database as the last commit in its log leaves them: https://www.sqlite.org/fileformat2.html#walformat.

    A frame counts if its salts are those of the log and its checksum, which goes on from frame to frame, is right.
    """
    pages, size = bytearray(data), int.from_bytes(log[8:12], "big")
    order = _ORDERS.get(int.from_bytes(log[:4], "big"), "") if len(log) >= 32 else ""
    sums = _checksum(log[:24], order, (0, 0)) if order else (0, 0)
    waiting: list[tuple[int, bytes]] = []
    valid = order and sums == struct.unpack(">2I", log[24:32])
    for at in range(32, len(log) - size - 23, size + 24) if valid else ():
        head, page = log[at : at + 24], log[at + 24 : at + 24 + size]
        sums = _checksum(head[:8] + page, order, sums)
        number, after = struct.unpack(">2I", head[:8])
        if head[8:16] != log[16:24] or sums != struct.unpack(">2I", head[16:]) or after * size > len(data) + len(log):
            break
        waiting.append((number, page))
        if after:  # the number of pages after a commit
            pages += bytes(max(0, after * size - len(pages)))
            for n, written in waiting:
                pages[(n - 1) * size : n * size] = written
            del pages[after * size :]
            waiting.clear()
    pages[_JOURNAL] = b"\1\1"[: len(pages[_JOURNAL])]
    return bytes(pages)


def _checksum(data: bytes, order: str, before: tuple[int, int]) -> tuple[int, int]:
    a, b = before
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for x, y in zip(words, words, strict=True):
        a = (a + x + b) & 0xFFFFFFFF
        b = (b + y + a) & 0xFFFFFFFF
    return a, b


def _state(path: Path) -> list[tuple[int, int]]:
    found: list[os.stat_result] = [p.stat() for p in (path, _log(path)) if p.exists()]
    return [(s.st_mtime_ns, s.st_size) for s in found]


# Ranks the records of a task, and selects those to be pruned.


@frozen
class Kept:
    """A record by the number of its row: a trial, or the reason why it cannot be read."""

    row: int
    trial: Trial | BadRow


@frozen
class Ranking:
    """The rows of the valid trials of a task on a target, one for each program, fastest first; and what is none."""

    rows: tuple[int, ...]
    passed: tuple[Passed, ...]


def rank(kept: Iterable[Kept]) -> Ranking:
    """The valid ones among the records of one task on one target.

    The time of a finalist replaces its earlier times: the least of many first measurements is mostly too good to be true.
    So the time of a program that was no finalist counts as longer, by the largest factor between the final and the first time
    of a finalist: it was slower than these when they were measured alike. A program that failed as a finalist does not count.
    Those that were compared in the runs of a model, in the last such comparison, have their order there: their times are
    exchanged, since times alone and in a model cannot be compared.
    """
    finals: dict[str, tuple[float, int]] = {}
    firsts: dict[str, tuple[float, int]] = {}
    contexts: dict[str, _Comparison] = {}
    failed: set[str] = set()
    passed: list[Passed] = []
    for k in kept:
        t = k.trial
        if isinstance(t, BadRow):
            passed.append(Passed(k.row, str(t)))
        elif t.phase == "context" and t.seconds is not None:
            contexts.setdefault(t.run, _Comparison()).add(t, k.row)
        elif t.seconds is not None:
            held = finals if t.phase == "final" else firsts
            held[t.program_key] = min(held.get(t.program_key, (t.seconds, k.row)), (t.seconds, k.row))
        elif t.phase == "final":
            failed.add(t.program_key)
    factor = max((s / firsts[key][0] for key, (s, _) in finals.items() if key in firsts), default=1.0)
    alike = {key: (max(1.0, factor) * s, row) for key, (s, row) in firsts.items()} | finals
    alike = {key: place for key, place in alike.items() if key not in failed}
    if contexts:
        alike |= max(contexts.values(), key=lambda c: c.date).in_order(alike, failed)
    return Ranking(tuple(number for _, number in sorted(alike.values())), tuple(passed))


@dataclass(slots=True)
class _Comparison:
    """Programs that were compared in the runs of a model: their times there, and their rows."""

    date: float = 0.0
    places: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])

    def add(self, t: Trial, row: int) -> None:
        assert t.seconds is not None
        self.date = max(self.date, t.created)
        self.places[t.program_key] = (t.seconds, row)

    def in_order(self, alike: Mapping[str, tuple[float, int]], failed: Collection[str]) -> dict[str, tuple[float, int]]:
        """The places of these programs among others: the fastest here has the least time that one of them has alone. They
        are ahead of others with the same time. Of those that were equally fast here, the one recorded first is ahead."""
        order = sorted((key for key in self.places if key not in failed), key=self.places.__getitem__)
        alone = sorted(alike[key][0] for key in order if key in alike)
        # One without a time alone, which was never a trial, has the time of the one that is next to it, and is behind it.
        times = [alone[min(n, len(alone) - 1)] if alone else self.places[key][0] for n, key in enumerate(order)]
        return {
            key: (s * (1.0 - (len(order) - n) * _NEXT), alike[key][1] if key in alike else self.places[key][1])
            for n, (key, s) in enumerate(zip(order, times, strict=True))
        }


@dataclass(slots=True)
class Group:
    """The records of one task on one target, in the order they were recorded."""

    task: str
    task_key: str
    target_key: str
    kept: list[Kept] = field(default_factory=list[Kept])

    @property
    def trials(self) -> dict[int, Trial]:
        """Those that can be read, by row."""
        return {k.row: k.trial for k in self.kept if isinstance(k.trial, Trial)}

    def ranked(self) -> tuple[tuple[int, Trial], ...]:
        """The valid ones with their rows, one for each program, fastest first."""
        trials = self.trials
        return tuple((row, trials[row]) for row in rank(self.kept).rows)

    def beyond(self, most: int) -> tuple[int, ...]:
        """The rows of all programs but the `most` best."""
        best = {t.program_key for _, t in self.ranked()[:most]}
        return tuple(row for row, t in self.trials.items() if t.program_key not in best)


def grouped(kept: Iterable[Kept], task: str | None = None) -> tuple[tuple[Group, ...], tuple[Passed, ...]]:
    """The records by task and target, sorted, of the task of that name or of all; and those that cannot be read."""
    found: dict[tuple[str, str, str], Group] = {}
    passed: list[Passed] = []
    for k in kept:
        t = k.trial
        if isinstance(t, BadRow):
            passed.append(Passed(k.row, str(t)))
        elif task is None or t.task == task:
            key = (t.task, t.task_key, t.target_key)
            found.setdefault(key, Group(*key)).kept.append(k)
    return tuple(found[key] for key in sorted(found)), tuple(passed)


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


def stamped(trials: Iterable[Trial]) -> list[Trial]:
    """The trials, each with a time and a version. A trial without a time gets the current one, distinct within the batch.

    A trial with a time is the same record in every database, however often it is added."""
    now, version = time.time(), package_version()
    return [
        t if t.created else replace(t, created=now + n * _TICK, version=version) for n, t in enumerate(trials)
    ]  # fmt: skip


_NEXT = 1e-12
"""The share by which a time of a comparison is before the next that is as long, and before others that are: those of small
kernels are as long as a step of the clock."""

_COMPOUNDED = f"SELECT run FROM trials WHERE scale > {LARGEST}"
"""The searches whose factors compounded."""

_TRUSTED = f"(scale = 1.0 OR run NOT IN ({_COMPOUNDED}))"

_VALID = f"status = 'ok' AND {_TRUSTED} AND seconds >= ? AND created < ? AND length(decisions) <= ?"

_TICK = 1e-6
"""Seconds between the dates of records that are made at once."""


MOST = 20_000
"""Trials of other tasks and machines that are read: those of months."""

ELSEWHERE = 4
"""At most so many schedules of a task on another machine are moved to this one: the fastest there need not be so here."""


@frozen
class Measured:
    """A time of a program, and the numbers of its loops. `machine` is another one, None for the one that was asked about."""

    task_key: str
    seconds: float
    features: tuple[float, ...]
    machine: Machine | None = None


@frozen
class Asked:
    """The task that is to learn."""

    key: str
    name: str


class Teaches(Protocol):
    """Has trials from which a search of a task on a machine may learn; `Database` and `Shipped` do."""

    def others(self, task: Asked, target_key: str, columns: str, before: float) -> Iterator[Measured]:
        """The measured trials of other tasks on that target, then those of all tasks on other targets of its kind. A task of
        another name that computes the same is another one.

        `columns` identifies the definition of the loop features; only records from before the date `before` count.
        """
        ...

    def best_decisions(self, task: Asked, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """The decisions of the fastest schedule of each other task on that target, then on the others of its kind; before
        these, of the task with other numbers of threads. Only records from before the date `before` count."""
        ...

    def decisions_elsewhere(self, task_key: str, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """The decisions of the fastest few schedules of the task on other targets of the kind with as many threads."""
        ...


def threads_in(target_key: str) -> str:
    """The number of threads, with the colon before it: keys of targets with as many end with it."""
    return target_key[target_key.rfind(":") :]


def kind_in(target_key: str) -> str:
    """The kind of the target, with the colon behind it: keys of targets of one kind begin with it."""
    return target_key[: target_key.find(":") + 1]


class Database:
    """An open database. Use `Database.open`, or `Database.reading` to change nothing; close it or use it in a `with`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, wait: float, open_: ExitStack) -> None:
        self.path = path
        self._connection = connection
        self._open = open_
        self._wait = wait
        self._lock = FileLock(f"{path}.lock", timeout=wait)

    @classmethod
    def open(cls, path: Path | None = None, *, wait: float = LOCK_SECONDS) -> Database:
        """Open the file, making it and its folder when they are missing. Raises TschedError (E0701 … E0705, E0715).

        A file of an earlier format is migrated. A file that is no database of records is left unchanged, and no file is made
        beside it.
        """
        path = (path or default_path()).expanduser()
        with errors.explained(path, wait):
            require_database_path(path, wait)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit: each statement stands alone and `add_all` groups what belongs together.
            with ExitStack() as stack:
                connection = stack.enter_context(closing(sqlite3.connect(path, timeout=wait, isolation_level=None)))
                with FileLock(f"{path}.lock", timeout=wait):
                    if is_empty(connection):
                        create(connection)
                    if (version := verify_schema(connection, path)) != SCHEMA_VERSION:
                        migrate(connection, version)
                    write_again(connection)
                return cls(path, connection, wait, stack.pop_all())

    @staticmethod
    def require_place(path: Path) -> None:
        """Raises TschedError (E0703, E0704) if `open` cannot make the missing file; nothing is made."""
        with errors.explained(path, LOCK_SECONDS):
            try_place(path)

    @classmethod
    def reading(cls, path: Path | None = None) -> Database | None:
        """The database in the file, opened for reading; None if it has no records. The file and its folder may be read-only.

        Raises TschedError (E0701, E0702, E0705, E0708, E0715).
        """
        path = (path or default_path()).expanduser()
        with errors.explained(path, LOCK_SECONDS, reading=True), ExitStack() as stack:
            if not path.exists():
                return None
            require_database_path(path, LOCK_SECONDS)
            connection = stack.enter_context(for_reading(path, LOCK_SECONDS))
            if is_empty(connection):
                return None
            if (version := verify_schema(connection, path)) != SCHEMA_VERSION:
                old, connection = connection, stack.enter_context(closing(_in_memory()))
                old.backup(connection)
                migrate(connection, version)
            return cls(path, connection, LOCK_SECONDS, stack.pop_all())

    @classmethod
    def required(cls, path: Path | None = None) -> Database:
        """As `reading`, but raises TschedError (E0711) if there are no records."""
        database = cls.reading(path)
        if database is None:
            raise errors.no_database(path or default_path())
        return database

    def add(self, trial: Trial) -> None:
        """Write the trial to disk, stamped with the time and the version. Raises TschedError, and writes nothing then."""
        self.add_all((trial,))

    def add_all(self, trials: Iterable[Trial], subjects: Iterable[Subject] = ()) -> int:
        """Record all of the trials in one transaction, or none. Returns the number of those that were new.

        The `subjects` of the trials are recorded with them.
        """
        rows = [to_row(t) for t in stamped(trials)]
        marks = ", ".join("?" * (COLUMNS.count(",") + 1))
        about = [(s.task_key, s.program, s.fingerprint, s.facts) for s in subjects]
        with self._changing():
            before = self._connection.total_changes
            self._connection.executemany(
                f"INSERT INTO trials ({COLUMNS}) VALUES ({marks}) ON CONFLICT (digest) DO NOTHING", rows
            )
            added = self._connection.total_changes - before
            for key, program, fingerprint, facts in about:
                if key:
                    self._connection.execute("INSERT OR IGNORE INTO workloads VALUES (?, ?)", (key, program))
                if fingerprint:
                    self._connection.execute("INSERT OR IGNORE INTO targets VALUES (?, ?)", (fingerprint, facts))
        return added

    @contextmanager
    def _changing(self) -> Generator[None]:
        """A transaction: its writes are on disk afterwards, or none of them if it fails."""
        with errors.explained(self.path, self._wait), self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def remove(self, rows: Sequence[int]) -> None:
        """Delete the rows, and shrink the file."""
        with self._changing():
            self._connection.executemany("DELETE FROM trials WHERE id = ?", [(n,) for n in rows])
        with errors.explained(self.path, self._wait), self._lock:
            self._connection.execute("VACUUM")

    def of(self, task_key: str, target_key: str) -> Iterator[Kept]:
        """The records of that task on that target, in the order they were recorded."""
        query = f"SELECT id, {READ} FROM trials WHERE task_key = ? AND target_key = ? ORDER BY id"
        return self._kept(query, (task_key, target_key))

    def others(self, task: Asked, target_key: str, columns: str, before: float) -> Iterator[Measured]:
        """As `Teaches` has it, latest first; unreadable rows are left out, as are those that a later measurement of the same
        search replaces, and those of other machines whose facts are not recorded."""
        kind = kind_in(target_key)
        here = ("target_key = ? AND (task_key <> ? OR task <> ?)", (target_key, task.key, task.name))
        elsewhere = ("target_key <> ? AND substr(target_key, 1, ?) = ?", (target_key, len(kind), kind))
        replaced: set[tuple[str, str]] = set()
        left = MOST
        with errors.explained(self.path, self._wait):
            facts = self.machines()

            @cache
            def machine_at(target: str, fingerprint: str) -> Machine:
                return Machine.of(target, facts[fingerprint])

            for which, values in (here, elsewhere):
                query = (
                    "SELECT run, program_key, task_key, seconds, features, target_key, fingerprint FROM trials "
                    f"WHERE {which} AND columns = ? AND status = 'ok' AND phase NOT IN ('final', 'context') AND {_TRUSTED} "
                    "AND created < ? AND length(features) <= ? ORDER BY id DESC LIMIT ?"
                )
                rows = self._connection.execute(query, (*values, columns, before, MAX_TEXT, left))
                for run, program, key, seconds, features, target, fingerprint in rows:
                    left -= 1
                    if run:
                        if (run, program) in replaced:
                            continue
                        replaced.add((run, program))
                    try:
                        place = None if target == target_key else machine_at(str(target), str(fingerprint))
                        found = Measured(str(key), seconds, decode_times(features), place)
                    except (msgspec.DecodeError, TypeError, KeyError):
                        continue
                    if (
                        isinstance(seconds, float)
                        and SHORTEST <= seconds < math.inf
                        and all(map(math.isfinite, found.features))
                    ):
                        yield found

    def workers(self) -> dict[str, str]:
        """The names of the workers' machines by their fingerprints."""
        return {key: name for key, facts in self.machines().items() if (name := worker_of(facts))}

    def machines(self) -> dict[str, str]:
        """The facts of each machine by its fingerprint."""
        return {str(f): str(x) for f, x in self._connection.execute("SELECT fingerprint, facts FROM targets")}

    def best_decisions(self, task: Asked, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """As `Teaches` has it, those that were recorded last first; what cannot be read is left out."""
        kind, threads = kind_in(target_key), threads_in(target_key)
        # With a single `min`, SQLite takes other columns from its row: https://www.sqlite.org/lang_select.html#bareagg
        query = (
            "SELECT decisions, min(seconds) FROM trials WHERE substr(target_key, 1, ?) = ? "
            f"AND (task_key <> ? OR task <> ? OR substr(target_key, ?) <> ?) AND {_VALID} GROUP BY target_key, task_key "
            "ORDER BY task_key = ? DESC, target_key = ? DESC, id DESC"
        )
        which = (len(kind), kind, task.key, task.name, -len(threads), threads)
        return self._decisions(query, (*which, SHORTEST, before, MAX_TEXT, task.key, target_key))

    def decisions_elsewhere(self, task_key: str, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """As `Teaches` has it; what cannot be read is left out."""
        kind, threads = kind_in(target_key), threads_in(target_key)
        query = (
            "SELECT decisions, min(seconds) FROM trials WHERE task_key = ? AND target_key <> ? "
            f"AND substr(target_key, 1, ?) = ? AND substr(target_key, ?) = ? AND {_VALID} "
            "GROUP BY target_key, program_key ORDER BY min(seconds) LIMIT ?"
        )
        limits = (SHORTEST, before, MAX_TEXT, ELSEWHERE)
        return self._decisions(query, (task_key, target_key, len(kind), kind, -len(threads), threads, *limits))

    def _decisions(self, query: str, values: tuple[object, ...]) -> list[Mapping[str, Decision]]:
        found: list[Mapping[str, Decision]] = []
        with errors.explained(self.path, self._wait):
            for text, _ in self._connection.execute(query, values):
                with suppress(msgspec.DecodeError, TypeError, ValueError):
                    found.append(decode_decisions(text))
        return found

    def all(self) -> Iterator[Kept]:
        """Every record of every task on every target, in the order they were recorded."""
        return self._kept(f"SELECT id, {READ} FROM trials ORDER BY id", ())

    def _kept(self, query: str, values: tuple[str, ...]) -> Iterator[Kept]:
        with errors.explained(self.path, self._wait):
            wrong = {run for (run,) in self._connection.execute(_COMPOUNDED)}
            for number, *row in self._connection.execute(query, values):
                try:
                    trial = from_row(tuple(row))
                    yield Kept(number, as_measured(trial) if trial.run in wrong else trial)
                except BadRow as e:
                    yield Kept(number, e)

    def scaled(self, task_key: str, target_key: str) -> bool:
        """Whether any time of that task on that target is recorded as divided."""
        query = "SELECT 1 FROM trials WHERE task_key = ? AND target_key = ? AND scale <> 1.0 LIMIT 1"
        with errors.explained(self.path, self._wait):
            return self._connection.execute(query, (task_key, target_key)).fetchone() is not None

    def wrong_factors(self, task_key: str, target_key: str, least: float) -> dict[int, Trial]:
        """The trials of that task on that target whose times were divided by wrong factors, by row, with their times as they
        were measured: those of searches whose factors compounded, or with a divided time below `least`."""
        found = {k.row: k.trial for k in self.of(task_key, target_key) if isinstance(k.trial, Trial)}
        low = {t.run for t in found.values() if t.scale != 1.0 and t.seconds is not None and t.seconds < least}
        query = "SELECT id FROM trials WHERE task_key = ? AND target_key = ? AND scale <> 1.0"
        with errors.explained(self.path, self._wait):
            scaled = [row for (row,) in self._connection.execute(query, (task_key, target_key)) if row in found]
        return {row: as_measured(found[row]) for row in scaled if found[row].scale == 1.0 or found[row].run in low}

    def repair(self, trials: Mapping[int, Trial]) -> None:
        """The rows have these trials, in one transaction. What is there already in another row is not there twice."""
        marks = ", ".join("?" * (COLUMNS.count(",") + 2))
        with self._changing():
            self._connection.executemany("DELETE FROM trials WHERE id = ?", [(n,) for n in trials])
            self._connection.executemany(
                f"INSERT INTO trials (id, {COLUMNS}) VALUES ({marks}) ON CONFLICT (digest) DO NOTHING",
                [(n, *to_row(t)) for n, t in trials.items()],
            )

    def subjects(self) -> tuple[dict[str, str], dict[str, str]]:
        """The program of each task by its key, and the facts of each machine by its fingerprint."""
        with errors.explained(self.path, self._wait):
            workloads = self._connection.execute("SELECT task_key, program FROM workloads").fetchall()
            return {str(k): str(p) for k, p in workloads}, self.machines()

    def trials(self, task_key: str, target_key: str) -> tuple[Trial, ...]:
        """Every trial of that task on that target, in the order they were recorded. TschedError (E0715) for a damaged one."""
        found: list[Trial] = []
        for k in self.of(task_key, target_key):
            if isinstance(k.trial, BadRow):
                raise errors.damaged(self.path, f"row {k.row} cannot be read: {k.trial}")
            found.append(k.trial)
        return tuple(found)

    def trial(self, row: int) -> Trial:
        """The trial of a row that a ranking named."""
        kept = self.row(row)
        assert kept is not None and isinstance(kept.trial, Trial)
        return kept.trial

    def row(self, number: int) -> Kept | None:
        """The record in the row of that number; None where there is no such row."""
        return next(self._kept(f"SELECT id, {READ} FROM trials WHERE id = ?", (str(number),)), None)

    def ranking(self, task_key: str, target_key: str) -> Ranking:
        """The valid trials of that task on that target."""
        return rank(self.of(task_key, target_key))

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


def salvaged(path: Path) -> tuple[list[Trial], list[Subject]]:
    """The records of a damaged database before and after what cannot be read, and what it says of their tasks and machines.

    A record counts if its digest is that of its values, so nothing in it was made up by the damage. Raises TschedError.
    """
    from tensorc_dsl.tuning.records.names import Named, carried, named  # late: it reads programs

    trials: dict[int, Trial] = {}
    subjects: list[Subject] = []
    with (
        errors.explained(path, LOCK_SECONDS, reading=True),
        suppress(sqlite3.DatabaseError),
        for_reading(path, LOCK_SECONDS) as connection,
    ):
        connection.text_factory = _leniently
        content, more = EARLIER.get(database_format(connection), (CONTENT, ()))
        tasks: dict[str, Named] = {}
        for key, program in _from_both_ends(connection, "task_key, program", "workloads"):
            if (task := named(key, program)) is not None:
                tasks[key] = task
                subjects.append(Subject(task.key, program, "", ""))
        for number, *row, key in _from_both_ends(connection, f"id, {content}, digest", "trials"):
            if row_digest(tuple(row)) == key:
                with suppress(BadRow):
                    values = tuple(v.encode() if isinstance(v, str) else v for v in (*row, *more))
                    trials[number] = carried(from_row(values), tasks)
        for key, facts in _from_both_ends(connection, "fingerprint, facts", "targets"):
            if digest(facts) == key:
                subjects.append(Subject("", "", key, facts))
    return [trials[n] for n in sorted(trials)], subjects


def _leniently(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _from_both_ends(connection: sqlite3.Connection, columns: str, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table until the first that SQLite cannot read, from the first on and from the last on."""
    for begin, beyond, order in ((-_END, ">", "ASC"), (_END, "<", "DESC")):
        # One row a query: a cursor reads a row ahead, and loses the one before a row that it cannot read.
        query = (
            f"SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid {beyond} ? ORDER BY rowid {order} LIMIT 1"
        )
        number = begin
        with suppress(sqlite3.DatabaseError):
            while row := connection.execute(query, (number,)).fetchone():
                number, *values = row
                yield tuple(values)


_END = (1 << 63) - 1
"""No row has this number or its negative."""


def _in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


# A queue of trials for the database: a trial that cannot be written now is retried with the next one, so that none is lost
# while the run lasts.


@frozen
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


_PHASES = (
    ("trial", ""),
    ("again", "measured again "),
    ("final", "in the comparison at the end "),
    ("context", "in the model "),
)


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

    def others(self, task: Asked, target_key: str, columns: str, before: float) -> Iterator[Measured]:
        """The recorded trials that teach; see `Database.others`."""
        return iter(()) if self._database is None else self._database.others(task, target_key, columns, before)

    def best_decisions(self, task: Asked, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """The best schedules of others; see `Database.best_decisions`."""
        return [] if self._database is None else self._database.best_decisions(task, target_key, before)

    def decisions_elsewhere(self, task_key: str, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """The best schedules of the task on other machines; see `Database.decisions_elsewhere`."""
        return [] if self._database is None else self._database.decisions_elsewhere(task_key, target_key, before)

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
