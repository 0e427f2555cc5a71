"""What can be wrong with a database file, as diagnostics. None of them touches the file."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tensorc_dsl.diagnostic import Diagnostic, TschedError, help_note


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


def disk_full(path: Path) -> TschedError:
    return _error(
        "E0704",
        f"no room to write records to `{path}`",
        "make room on the disk; what was recorded before is kept",
    )


def busy(path: Path, seconds: float) -> TschedError:
    return _error(
        "E0705",
        f"another process held `{path}` for more than {seconds:g} s",
        "wait for the other run to end, or give each run its own file",
    )


@contextmanager
def explained(path: Path, wait: float) -> Generator[None]:
    """Errors of the file system and of SQLite become diagnostics; misuse of the API stays a bug."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError, msgspec.DecodeError) as e:
        raise _explain(path, wait, e) from e


def _explain(path: Path, wait: float, e: Exception) -> Exception:
    if isinstance(e, TimeoutError):  # filelock's Timeout is one
        return busy(path, wait)
    if isinstance(e, msgspec.DecodeError):
        return not_records(path, f"a row cannot be read ({e})")
    if not isinstance(e, sqlite3.Error):
        return disk_full(path) if getattr(e, "errno", None) == errno.ENOSPC else unwritable(path, str(e))
    # The primary code is the low byte: https://www.sqlite.org/rescode.html
    match getattr(e, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return disk_full(path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return busy(path, wait)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
            return unwritable(path, str(e))
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return not_records(path, str(e))
        case _:
            return e
