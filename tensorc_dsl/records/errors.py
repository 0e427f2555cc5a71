"""Diagnostics for invalid database files. None of them changes the file."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tensorc_dsl.diagnostic import Diagnostic, Note, Severity, TschedError, help_note


@dataclass(frozen=True, slots=True)
class Passed:
    """A row that is passed over, by its number, and why."""

    row: int
    why: str


def _error(code: str, message: str, repair: str) -> TschedError:
    return TschedError(Diagnostic(code, message, None, notes=(help_note(repair),)))


def newer_schema(path: Path, found: int, known: int) -> TschedError:
    return _error(
        "E0701",
        f"`{path}` has records in format {found}; this version reads up to {known}",
        "use the newer tensorc-dsl that wrote it, or give another file",
    )


def not_records(path: Path, why: str) -> TschedError:
    return _error(
        "E0702",
        f"`{path}` is not a database of records: {why}",
        "nothing in the file was changed; move it away or give another file",
    )


def unwritable(path: Path, why: str) -> TschedError:
    return _error(
        "E0703",
        f"cannot write records to `{path}`: {why}",
        "give a file in a folder that you may write to",
    )


def unreadable(path: Path, why: str) -> TschedError:
    return _error("E0708", f"cannot read records from `{path}`: {why}", "give a file that you may read")


def disk_full(path: Path) -> TschedError:
    return _error(
        "E0704",
        f"no room to write records to `{path}`",
        "make room on the disk; what was recorded before is kept",
    )


def is_disk_full(e: TschedError) -> bool:
    return any(d.code == "E0704" for d in e.diagnostics)


def busy(path: Path, seconds: float) -> TschedError:
    return _error(
        "E0705",
        f"another process held `{path}` for more than {seconds:g} s",
        "wait for the other run to end, or give each run its own file",
    )


def not_exported(path: str, why: str) -> TschedError:
    return _error(
        "E0709",
        f"`{path}` holds no exported records: {why}",
        "give a file that `tensorc-dsl db export` wrote; `db merge` takes a database",
    )


def no_database(path: Path) -> TschedError:
    return _error("E0711", f"there are no records in `{path}`", "`tensorc-dsl tune` records what it tries")


def no_record(path: Path, row: int) -> TschedError:
    return _error("E0710", f"`{path}` has no record {row}", "`tensorc-dsl db best` names the rows of the best ones")


SHOWN = 5
"""Records of which it is said why they are passed over."""


def _reasons(what: str, passed: Sequence[Passed]) -> list[str]:
    more = [f"and {len(passed) - SHOWN} more"] if len(passed) > SHOWN else []
    return [f"{what} {p.row}: {p.why}" for p in passed[:SHOWN]] + more


def passed_over(path: Path, task: str, passed: Sequence[Passed]) -> Diagnostic:
    """A warning: records that cannot be used."""
    lines = _reasons("row", passed)
    records = "a record" if len(passed) == 1 else f"{len(passed)} records"
    return Diagnostic(
        "W0701",
        f"{records} of `{task}` in `{path}` cannot be used",
        None,
        notes=(Note("note", "\n".join(lines)), help_note("tune the task again, or give another file")),
        severity=Severity.WARNING,
    )


def lines_passed(path: str, passed: Sequence[Passed]) -> Diagnostic:
    """A warning: lines of an export that are no records."""
    lines = _reasons("line", passed)
    many = "a line" if len(passed) == 1 else f"{len(passed)} lines"
    return Diagnostic(
        "W0702",
        f"{many} of `{path}` {'is' if len(passed) == 1 else 'are'} no record, and passed over",
        None,
        notes=(Note("note", "\n".join(lines)), help_note("export the records again; the other lines are imported")),
        severity=Severity.WARNING,
    )


def other_version(task: str, row: int, changed: Sequence[str]) -> Diagnostic:
    """A warning: the best schedule is of other modules than there are now, `changed` by kind and name."""
    names = [f"{kind} `{name}`" for kind, _, name in (c.partition(" ") for c in changed)]
    which = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return Diagnostic(
        "W0703",
        f"the best record of `{task}` was made by {'another version' if len(names) == 1 else 'other versions'} of {which}",
        None,
        notes=(
            Note("note", f"row {row} is used as it is: its schedule says every step by itself"),
            help_note("tune the task again: a faster one may be found"),
        ),
        severity=Severity.WARNING,
    )


@contextmanager
def explained(path: Path, wait: float, *, reading: bool = False) -> Generator[None]:
    """Errors of the file system and of SQLite become diagnostics; misuse of the API stays a bug."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as e:
        raise _explain(path, wait, e, unreadable if reading else unwritable) from e


_LEAST = 64 << 10
"""Bytes that SQLite needs to open a database, and some more."""


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _LEAST
    except OSError:
        return False  # the folder is gone, which is not for want of room


def _explain(path: Path, wait: float, e: Exception, impossible: Callable[[Path, str], TschedError]) -> Exception:
    if isinstance(e, TimeoutError):  # filelock's Timeout is one
        return busy(path, wait)
    if not isinstance(e, sqlite3.Error):
        return disk_full(path) if getattr(e, "errno", None) == errno.ENOSPC else impossible(path, str(e))
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
