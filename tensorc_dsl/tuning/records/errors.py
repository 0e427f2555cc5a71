"""Diagnostics for invalid database files, none of which is changed; and the mark of a database of ours in SQLite's
header.
"""

from __future__ import annotations

import errno
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tensorc_dsl.base.diagnostic import Diagnostic, Note, TschedError, problem
from tensorc_dsl.base.frozen import frozen

# The mark of a database of ours in SQLite's header: https://www.sqlite.org/fileformat.html.


MAGIC = b"SQLite format 3\0"
"""How the header of every database begins."""

APPLICATION_ID = 0x75C4ED01
"""Marks the file as ours, so that another program's database is never written to."""

HEADER = 100
"""Bytes of the header."""

_ID = slice(68, 72)


def is_marked(head: bytes) -> bool:
    """Whether a header is that of a database of ours."""
    return head.startswith(MAGIC) and int.from_bytes(head[_ID], "big") == APPLICATION_ID


def has_mark(path: Path) -> bool:
    """Whether the file can be read and begins with such a header."""
    try:
        with path.open("rb") as file:
            return is_marked(file.read(HEADER))
    except OSError:
        return False


# Diagnostics for invalid database files. None of them changes the file.


@frozen
class Passed:
    """A row that is skipped, by its number, with the reason."""

    row: int
    why: str


@problem(
    "E0701",
    "`{path}` has records in format {found}; this version reads up to {known}",
    help="use the newer tensorc-dsl that wrote it, or give another file",
)
def NEWER_SCHEMA(*, path: Path, found: int, known: int) -> None: ...
@problem(
    "E0702",
    "`{path}` is not a database of records: {why}",
    help="nothing in the file was changed; move it away or give another file",
)
def NOT_RECORDS(*, path: Path, why: str) -> None: ...
@problem(
    "E0703", "cannot write records to `{path}`: {why}", help="name a file that you may write with `--records PATH`"
)
def UNWRITABLE(*, path: Path, why: str) -> None: ...
@problem(
    "E0704", "no room to write records to `{path}`", help="make room on the disk; what was recorded before is kept"
)
def DISK_FULL(*, path: Path) -> None: ...
@problem(
    "E0705",
    "another process held `{path}` for more than {seconds:g} s",
    help="wait for the other run to end, or give each run its own file",
)
def BUSY(*, path: Path, seconds: float) -> None: ...
@problem(
    "E0715",
    "the database of records `{path}` is damaged: {why}",
    help="`{command}` copies the records that can be read into a new file; nothing in this one was changed",
)
def DAMAGED(*, path: Path, why: str, command: str) -> None: ...
@problem(
    "W0704",
    "`{path}` is damaged: {records} in it can be read, and others may be lost",
    help="move the file away, and go on with the one that the records were copied to",
)
def SALVAGED(*, path: Path, records: str) -> None: ...
@problem("E0708", "cannot read records from `{path}`: {why}", help="give a file that you may read")
def UNREADABLE(*, path: Path, why: str) -> None: ...
@problem("W0701", "{records} of `{task}` in `{path}` cannot be used", help="tune the task again, or give another file")
def PASSED_OVER(*, records: str, task: str, path: Path) -> None: ...
@problem(
    "E0709",
    "`{path}` holds no exported records: {why}",
    help="give a file that `tensorc-dsl db export` wrote; `db merge` takes a database",
)
def NOT_EXPORTED(*, path: str, why: str) -> None: ...
@problem("E0710", "`{path}` has no record {row}", help="`tensorc-dsl db best` names the rows of the best ones")
def NO_RECORD(*, path: Path, row: int) -> None: ...
@problem(
    "E0711",
    "there are no records in `{path}`",
    help="give the path of a database with records; `tensorc-dsl tune` records what it tries there",
)
def NO_DATABASE(*, path: Path) -> None: ...
@problem(
    "W0702",
    "{lines} of `{path}` {be} no record, and passed over",
    help="export the records again; the other lines are imported",
)
def LINES_PASSED(*, lines: str, path: str, be: str) -> None: ...
@problem(
    "W0703",
    "the best record of `{task}` was made by {versions} of {which}",
    help="tune the task again: a faster one may be found",
)
def OTHER_VERSION(*, task: str, versions: str, which: str) -> None: ...
@problem(
    "W0705",
    "no recorded schedule of `{task}` on this machine: it is {origin}",
    help="tune the task: `tensorc-dsl tune`, in Python `task.tune()`",
)
def UNTUNED(*, task: str, origin: str) -> None: ...


def newer_schema(path: Path, found: int, known: int) -> TschedError:
    return TschedError(NEWER_SCHEMA(None, path=path, found=found, known=known))


def not_records(path: Path, why: str) -> TschedError:
    return TschedError(NOT_RECORDS(None, path=path, why=why))


def damaged(path: Path, why: str) -> TschedError:
    words = ("tensorc-dsl", "db", "merge", str(path), "--records", "NEW.sqlite")
    return TschedError(DAMAGED(None, path=path, why=why, command=shlex.join(words)))


def is_damage(e: TschedError) -> bool:
    return any(d.code == DAMAGED.code for d in e.diagnostics)


def salvage(path: Path, records: str) -> Diagnostic:
    """A warning: of a damaged database so many records were read."""
    return SALVAGED(None, path=path, records=records)


def unwritable(path: Path, why: str) -> TschedError:
    return TschedError(UNWRITABLE(None, path=path, why=why))


def unreadable(path: Path, why: str) -> TschedError:
    return TschedError(UNREADABLE(None, path=path, why=why))


def disk_full(path: Path) -> TschedError:
    return TschedError(DISK_FULL(None, path=path))


def is_disk_full(e: TschedError) -> bool:
    return any(d.code == DISK_FULL.code for d in e.diagnostics)


def busy(path: Path, seconds: float) -> TschedError:
    return TschedError(BUSY(None, path=path, seconds=seconds))


def records_not_exported(path: str, why: str) -> TschedError:
    return TschedError(NOT_EXPORTED(None, path=path, why=why))


def no_database(path: Path) -> TschedError:
    return TschedError(NO_DATABASE(None, path=path))


def no_record(path: Path, row: int) -> TschedError:
    return TschedError(NO_RECORD(None, path=path, row=row))


SHOWN = 5
"""The most records for which the reason is reported why they are skipped."""


def _reasons(what: str, passed: Sequence[Passed]) -> list[str]:
    more = [f"and {len(passed) - SHOWN} more"] if len(passed) > SHOWN else []
    return [f"{what} {p.row}: {p.why}" for p in passed[:SHOWN]] + more


def passed_over(path: Path, task: str, passed: Sequence[Passed]) -> Diagnostic:
    """A warning: records that cannot be used."""
    lines = _reasons("row", passed)
    records = "a record" if len(passed) == 1 else f"{len(passed)} records"
    return PASSED_OVER(None, (Note("note", "\n".join(lines)),), records=records, task=task, path=path)


def lines_passed(path: str, passed: Sequence[Passed]) -> Diagnostic:
    """A warning: lines of an export that are no records."""
    lines = _reasons("line", passed)
    many = "a line" if len(passed) == 1 else f"{len(passed)} lines"
    be = "is" if len(passed) == 1 else "are"
    return LINES_PASSED(None, (Note("note", "\n".join(lines)),), lines=many, path=path, be=be)


def other_version(task: str, row: int, changed: Sequence[str]) -> Diagnostic:
    """A warning: the best schedule is of other modules than there are now, `changed` by kind and name."""
    names = [f"{kind} `{name}`" for kind, _, name in (c.partition(" ") for c in changed)]
    which = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    versions = "another version" if len(names) == 1 else "other versions"
    note = Note("note", f"row {row} is used as it is: its schedule says every step by itself")
    return OTHER_VERSION(None, (note,), task=task, versions=versions, which=which)


@contextmanager
def explained(path: Path, wait: float, *, reading: bool = False) -> Generator[None]:
    """Errors of the file system and of SQLite become diagnostics; misuse of the API stays a bug."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as e:
        raise _database_error(path, wait, e, unreadable if reading else unwritable) from e


LEAST = 64 << 10
"""Bytes that SQLite needs to open a database, and some more."""


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < LEAST
    except OSError:
        return False  # the folder is gone, which is not for want of room


def _database_error(path: Path, wait: float, e: Exception, impossible: Callable[[Path, str], TschedError]) -> Exception:
    if isinstance(e, TimeoutError):  # filelock's Timeout is one
        return busy(path, wait)
    if not isinstance(e, sqlite3.Error):
        reason = (getattr(e, "strerror", None) or str(e)).lower()
        return disk_full(path) if getattr(e, "errno", None) == errno.ENOSPC else impossible(path, reason)
    # A trigger that was put in while we run is not our own rule about rows.
    if getattr(e, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return not_records(path, str(e))
    # The primary code is the low byte: https://www.sqlite.org/rescode.html
    match getattr(e, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return disk_full(path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return busy(path, wait)
        case sqlite3.SQLITE_IOERR if _is_full(path):
            return disk_full(path)  # SQLite has no other code for that where it maps its files
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
            return impossible(path, str(e))
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT if has_mark(path):
            return damaged(path, str(e))
        # The last three: tables that were changed while we run, and rows that are none.
        case (
            sqlite3.SQLITE_NOTADB
            | sqlite3.SQLITE_CORRUPT
            | sqlite3.SQLITE_ERROR
            | sqlite3.SQLITE_SCHEMA
            | sqlite3.SQLITE_TOOBIG
        ):
            return not_records(path, str(e))
        case _:
            return e
