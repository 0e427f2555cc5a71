"""Reads the records of a damaged database page by page, past SQLite: what one page lost takes no other page with it.

The format of the pages is documented: https://www.sqlite.org/fileformat2.html. A record counts if its digest is that of its
values, so nothing that is read here was made up by the damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.records.keys import Subject, digest, workload_key
from tensorc_dsl.records.mark import MAGIC
from tensorc_dsl.records.rows import BadRow, from_row, row_digest
from tensorc_dsl.records.schema import CONTENT
from tensorc_dsl.records.trial import Trial
from tensorc_dsl.source import Source

Value = int | float | str | bytes | None

_NAMES = CONTENT.split(", ")
_REALS = frozenset({"seconds", "max_error", "build_seconds", "run_seconds", "created", "scale"})

_LEAF = 0x0D
"""The kind of a page with rows of a table."""

_SIZES = (4096, 8192, 16384, 32768, 65536, 2048, 1024, 512)
"""The sizes of pages; the first is SQLite's default."""

_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""The bytes of a whole number by its type in a record."""


MOST = 256 << 20
"""Bytes of a file that is no database by its header, and is looked at all the same."""

LONGEST = 16 << 20
"""Bytes of a row that is read."""


@dataclass(slots=True)
class Rescued:
    """What was read: the trials in the order they were recorded, and what is known of their tasks and machines."""

    trials: list[Trial] = field(default_factory=list[Trial])
    subjects: list[Subject] = field(default_factory=list[Subject])


def rescued(path: Path) -> Rescued:
    """All records of the file and of its log that are whole. Raises OSError."""
    found = Rescued()
    trials: dict[str, tuple[int, Trial]] = {}
    subjects: set[Subject] = set()
    for number, values in _rows(path):
        if len(values) == len(_NAMES) + 2:
            row = _content(values)
            key = values[-1]
            if isinstance(key, str) and row is not None and row_digest(row) == key:
                try:
                    trials[key] = (number, from_row(tuple(v.encode() if isinstance(v, str) else v for v in row)))
                except BadRow:
                    continue
        elif (subject := _subject(values)) is not None:
            subjects.add(subject)
    found.trials = [t for _, t in sorted(trials.values(), key=lambda x: x[0])]
    found.subjects = sorted(subjects, key=lambda s: (s.task_key, s.fingerprint))
    return found


def holds_records(path: Path) -> bool:
    """Whether a whole record is in a file that SQLite does not know as a database. Raises OSError."""
    size = path.stat().st_size
    if size % _SIZES[-1] or not 0 < size <= MOST:
        return False
    return any(
        len(v) == len(_NAMES) + 2 and (row := _content(v)) is not None and row_digest(row) == v[-1]
        for _, v in _rows(path)
    )  # fmt: skip


def _content(values: Sequence[Value]) -> tuple[Value, ...] | None:
    """The values of `CONTENT` in a row of the trials, as they were written; None for other rows."""
    row: list[Value] = []
    for name, value in zip(_NAMES, values[1:-1], strict=True):
        if isinstance(value, bytes):
            return None
        # SQLite writes a real number without a fraction as a whole one.
        row.append(float(value) if name in _REALS and isinstance(value, int) else value)
    return tuple(row)


def _subject(values: Sequence[Value]) -> Subject | None:
    match values:
        case (str() as key, str() as workload, str() as program) if digest(program) == key:
            try:
                known = workload_key(parse_program(Source("workload", program)))
            except TschedError:
                return None
            return Subject(key, workload, program, "", "") if known == workload else None
        case (str() as fingerprint, str() as facts) if digest(facts) == fingerprint:
            return Subject("", "", "", fingerprint, facts)
        case _:
            return None


# --- pages -----------------------------------------------------------------------------------------------------------


def _rows(path: Path) -> Iterator[tuple[int, list[Value]]]:
    """The rows of all tables in all pages, with their numbers: as the log left the pages, and as they were before."""
    data = path.read_bytes()
    size = _page_size(data)
    reserved = data[20] if data.startswith(MAGIC) else 0
    before = {n + 1: data[n * size : (n + 1) * size] for n in range(len(data) // size)}
    log = path.with_name(f"{path.name}-wal")
    now = before | (_logged(log.read_bytes(), size) if log.exists() else {})
    for pages in (now, {n: page for n, page in before.items() if now[n] is not page}):
        for n, page in pages.items():
            yield from _leaf(page, 100 if n == 1 else 0, now if pages is now else before, size - reserved)


def _page_size(data: bytes) -> int:
    told = int.from_bytes(data[16:18], "big") if data.startswith(MAGIC) else 0
    return {1: 65536}.get(told, told) if told in (1, *_SIZES) else _SIZES[0]


def _logged(log: bytes, size: int) -> dict[int, bytes]:
    """The pages of a write-ahead log by their numbers, each as it was written last."""
    found: dict[int, bytes] = {}
    for start in range(32, len(log) - size - 23, size + 24):
        # The salts of a frame tell whether it is of this log or is left from one before.
        if log[start + 8 : start + 16] == log[16:24]:
            found[int.from_bytes(log[start : start + 4], "big")] = log[start + 24 : start + 24 + size]
    return found


def _leaf(page: bytes, start: int, pages: Mapping[int, bytes], usable: int) -> Iterator[tuple[int, list[Value]]]:
    if len(page) < start + 8 or page[start] != _LEAF:
        return
    for n in range(int.from_bytes(page[start + 3 : start + 5], "big")):
        place = start + 8 + 2 * n
        try:
            yield _cell(page, int.from_bytes(page[place : place + 2], "big"), pages, usable)
        except (IndexError, KeyError, ValueError, struct.error):  # what the damage left is no cell
            continue


def _cell(page: bytes, at: int, pages: Mapping[int, bytes], usable: int) -> tuple[int, list[Value]]:
    """The row of a cell. Raises IndexError, KeyError or ValueError for one that is none."""
    length, at = _varint(page, at)
    number, at = _varint(page, at)
    if length > LONGEST:
        raise ValueError
    most, least = usable - 35, (usable - 12) * 32 // 255 - 23
    local = length
    if length > most:
        over = least + (length - least) % (usable - 4)
        local = over if over <= most else least
    data = page[at : at + local]
    if local < length:
        parts = [data]
        follow, left = int.from_bytes(page[at + local : at + local + 4], "big"), length - local
        while left > 0:
            more = pages[follow]
            parts.append(more[4 : min(usable, 4 + left)])
            left -= usable - 4
            follow = int.from_bytes(more[:4], "big")
        data = b"".join(parts)
    return number, _values(data)


def _values(data: bytes) -> list[Value]:
    head, at = _varint(data, 0)
    kinds: list[int] = []
    while at < head:
        kind, at = _varint(data, at)
        kinds.append(kind)
    found: list[Value] = []
    for kind in kinds:
        width = _INTEGERS.get(kind, 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2)
        raw = data[at : at + width]
        if len(raw) != width:
            raise ValueError
        at += width
        match kind:
            case 0:
                found.append(None)
            case 7:
                found.append(struct.unpack(">d", raw)[0])
            case 8 | 9:
                found.append(kind - 8)
            case 10 | 11:
                raise ValueError
            case _ if kind < 12:
                found.append(int.from_bytes(raw, "big", signed=True))
            case _:
                found.append(raw.decode() if kind % 2 else raw)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of 1 to 9 bytes, the first ones with 7 bits each, and where it ends."""
    value = 0
    for n in range(9):
        byte = data[at + n]
        if n == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + n + 1
    raise AssertionError
