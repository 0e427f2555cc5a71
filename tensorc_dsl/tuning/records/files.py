"""Opens the file of a database: an invalid file is not changed, and readers need no right to write."""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from tensorc_dsl.tuning.records import errors
from tensorc_dsl.tuning.records.errors import HEADER, MAGIC, is_marked
from tensorc_dsl.tuning.records.schema import is_empty

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
