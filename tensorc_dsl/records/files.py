"""Opens the file of a database: an invalid file is not changed, and readers need no right to write."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from tensorc_dsl.records import errors
from tensorc_dsl.records.mark import HEADER, MAGIC, is_marked
from tensorc_dsl.records.rescue import holds_records
from tensorc_dsl.records.schema import is_empty

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)

_COPIES = 5
"""How often a copy is tried while another process writes."""


def look(path: Path, wait: float) -> None:
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
        if holds_records(path):
            raise errors.damaged(path, "its header is not that of a database")
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
        # SQLite keeps an index beside the file for as long as it reads, which a folder may not allow.
        if e.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        with tempfile.TemporaryDirectory() as folder:
            copy = _copied(path, Path(folder))
            with closing(_connect(copy, "mode=rw", wait)) as connection:
                yield connection
        return
    with closing(connection):
        yield connection


def _connect(path: Path, options: str, wait: float) -> sqlite3.Connection:
    # Autocommit: each statement stands alone and writers group what belongs together.
    return sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, timeout=wait, isolation_level=None)


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _copied(path: Path, folder: Path) -> Path:
    """A consistent copy of the database with its log."""
    copy = folder / "records.sqlite"
    for _ in range(_COPIES):
        before = _state(path)
        shutil.copyfile(path, copy)
        if _log(path).exists():
            shutil.copyfile(_log(path), _log(copy))
        if _state(path) == before:
            return copy
    raise TimeoutError


def _state(path: Path) -> list[tuple[int, int]]:
    found: list[os.stat_result] = [p.stat() for p in (path, _log(path)) if p.exists()]
    return [(s.st_mtime_ns, s.st_size) for s in found]
