"""The mark of a database of ours in SQLite's header: https://www.sqlite.org/fileformat.html."""

from __future__ import annotations

from pathlib import Path

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
