"""The schema of a database of records: the check that a file has it, rows as trials, and the migration of earlier formats."""

from __future__ import annotations

import math
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tensorc_dsl.tuning.measure.outcome import Status
from tensorc_dsl.tuning.records import errors
from tensorc_dsl.tuning.records.errors import APPLICATION_ID
from tensorc_dsl.tuning.records.trial import (
    Trial,
    decode_decisions,
    decode_names,
    decode_recorded_modules,
    decode_times,
    digest,
    encode_decisions,
    encode_names,
    encode_recorded_modules,
    encode_times,
)

# The schema of a database of records, and the check that a file has it.


SCHEMA_VERSION = 4

OLD_COLUMNS = (
    "task_key, target_key, task, strategy, seed, trial, status, decisions, trace, program_key, seconds, times, "
    "message, max_error, build_seconds, run_seconds, phase, created, version"
)
"""Those of format 1."""

CONTENT_2 = f"{OLD_COLUMNS}, run, fingerprint, modules, censored, cache, scale, columns, features"
"""Those of format 2, without the digest."""

CONTENT_3 = f"{CONTENT_2}, names"
"""Those of format 3."""

CONTENT = f"{CONTENT_3}, at"

COLUMNS = f"{CONTENT}, digest"

_TABLE = """
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    task_key TEXT NOT NULL, target_key TEXT NOT NULL, task TEXT NOT NULL,
    strategy TEXT NOT NULL, seed INTEGER NOT NULL, trial INTEGER NOT NULL,
    status TEXT NOT NULL, decisions TEXT NOT NULL, trace TEXT NOT NULL, program_key TEXT NOT NULL,
    seconds REAL, times TEXT NOT NULL, message TEXT NOT NULL, max_error REAL,
    build_seconds REAL NOT NULL, run_seconds REAL NOT NULL, phase TEXT NOT NULL,
    created REAL NOT NULL, version TEXT NOT NULL,{more}
    CHECK ((status = 'ok') = (seconds IS NOT NULL))
) STRICT;
CREATE INDEX trials_by_task ON trials (task_key, target_key);
"""

_MORE = """
    run TEXT NOT NULL, fingerprint TEXT NOT NULL, modules TEXT NOT NULL,
    censored INTEGER NOT NULL, cache TEXT NOT NULL, scale REAL NOT NULL,
    columns TEXT NOT NULL, features TEXT NOT NULL,{names}
    digest TEXT NOT NULL,"""

_TABLES = """{trials}
CREATE UNIQUE INDEX trials_by_digest ON trials (digest);
CREATE TABLE workloads (
    task_key TEXT PRIMARY KEY,{workload} program TEXT NOT NULL
) STRICT;
CREATE TABLE targets (
    fingerprint TEXT PRIMARY KEY, facts TEXT NOT NULL
) STRICT;
"""

_NAMES_3 = " names TEXT NOT NULL,"

_SCHEMA = _TABLES.format(trials=_TABLE.format(more=_MORE.format(names=f"{_NAMES_3} at TEXT NOT NULL,")), workload="")

SCHEMAS = {
    1: _TABLE.format(more=""),
    2: _TABLES.format(trials=_TABLE.format(more=_MORE.format(names="")), workload=" workload TEXT NOT NULL,"),
    3: _TABLES.format(trials=_TABLE.format(more=_MORE.format(names=_NAMES_3)), workload=""),
    SCHEMA_VERSION: _SCHEMA,
}


def create(connection: sqlite3.Connection) -> None:
    """Make an empty file a database without records."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the database has no content, of ours or of another program."""
    return not (_pragma(connection, "application_id") or _pragma(connection, "user_version") or _items(connection))


def verify_schema(connection: sqlite3.Connection, path: Path) -> int:
    """The format of the database. Raises TschedError (E0701, E0702) unless it has exactly the tables of that format:
    a trigger would run when rows are added, and a view may have the name of a table."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise errors.not_records(path, "it is another program's SQLite database")
    version = _pragma(connection, "user_version")
    if version > SCHEMA_VERSION:
        raise errors.newer_schema(path, version, SCHEMA_VERSION)
    if version not in SCHEMAS:
        raise errors.not_records(path, f"there is no format {version}")
    wanted, found = _wanted(version), _items(connection)
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            raise errors.not_records(path, f"its {wanted[name][0]} `{name}` is missing")
        if name not in wanted:
            raise errors.not_records(path, f"it has a {found[name][0]} `{name}` that is not ours")
        if found[name] != wanted[name]:
            raise errors.not_records(path, f"its {found[name][0]} `{name}` is not as we make it")
    return version


def replace_tables(connection: sqlite3.Connection, version: int) -> None:
    """The tables are new and empty afterwards, and those of the earlier format begin with `old_`; in a transaction."""
    for name, (kind, _) in _wanted(version).items():
        connection.execute(f"ALTER TABLE {name} RENAME TO old_{name}" if kind == "table" else f"DROP INDEX {name}")
    for statement in filter(str.strip, _SCHEMA.split(";")):
        connection.execute(statement)


def write_again(connection: sqlite3.Connection) -> None:
    """Raises the error of SQLite if the database cannot be written. The content of the file is unchanged.

    SQLite reports neither a read-only file nor a full disk when it opens the file.
    """
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@cache
def _wanted(version: int) -> dict[str, tuple[str, str]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMAS[version])
        return _items(connection)
    finally:
        connection.close()


def _items(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Tables, indices, triggers and views by name, but for SQLite's own: what each is, and its words."""
    query = "SELECT name, type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    return {str(name): (str(kind), " ".join(str(sql).split())) for name, kind, sql in connection.execute(query)}


def database_format(connection: sqlite3.Connection) -> int:
    """The number of the format that the file says it has."""
    return _pragma(connection, "user_version")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


# Converts between rows and trials. Every value of a row is checked, since the file may have been edited.


MAX_TEXT = 1 << 20
"""Bytes of a text that is read: a hundred times the longest trace of the library's spaces."""

SHORTEST = 1e-10
"""Seconds that no call of a kernel undercuts: less than one step of a processor's clock."""

LARGEST = 8.0
"""By how much a time is divided at most. Beside so much other work, one program's factor says nothing of another's."""

_NAMES = CONTENT.split(", ")
_TEXTS = frozenset(
    "task_key target_key task strategy status decisions trace program_key times message phase version "
    "run fingerprint modules cache columns features names at".split()
)

READ = ", ".join(
    f"CASE WHEN length(CAST({n} AS BLOB)) <= {MAX_TEXT} THEN CAST({n} AS BLOB) ELSE length(CAST({n} AS BLOB)) END"
    if n in _TEXTS
    else n
    for n in _NAMES
)
"""The columns in a query: texts as bytes, those that are too long as their length."""


class BadRow(Exception):
    """A row has a value that no search records. The message names it."""


def to_row(t: Trial) -> tuple[Any, ...]:
    """The values of `COLUMNS`."""
    row = (
        t.task_key, t.target_key, t.task, t.strategy, t.seed, t.trial, t.status, encode_decisions(t.decisions),
        t.trace, t.program_key, _real(t.seconds), encode_times(t.times), _storable(t.message), _real(t.max_error),
        float(t.build_seconds), float(t.run_seconds), t.phase, float(t.created), t.version, t.run, t.fingerprint,
        encode_recorded_modules(t.modules), int(t.censored), t.cache, float(t.scale),
        t.columns, encode_times(t.features), encode_names(t.names), encode_times(t.at),
    )  # fmt: skip
    return (*row, row_digest(row))


def row_digest(row: tuple[Any, ...]) -> str:
    """The identity of a record, in every copy: the digest of the values of `CONTENT`."""
    return digest(repr(row))


def _real(value: float | None) -> float | None:
    return None if value is None else float(value)


def _storable(text: str) -> str:
    """The output of a process as valid, bounded text: lone surrogates are escaped, and a long text is cut."""
    return text.encode("utf-8", "backslashreplace")[:MAX_TEXT].decode("utf-8", "ignore")


def from_row(row: tuple[Any, ...]) -> Trial:
    """The trial of a row of `READ`. Raises BadRow."""
    values: dict[str, Any] = {}
    for name, value in zip(_NAMES, row, strict=True):
        values[name] = _text(name, value) if name in _TEXTS else value
    try:
        values["decisions"] = decode_decisions(values["decisions"])
        values["times"] = decode_times(values["times"])
        values["features"] = decode_times(values["features"])
        values["at"] = decode_times(values["at"])
        values["modules"] = decode_recorded_modules(values["modules"])
        values["names"] = decode_names(values["names"])
        values["censored"] = values["censored"] != 0
        trial = msgspec.convert(values, Trial)
    except msgspec.DecodeError as e:
        raise BadRow(str(e)) from e
    verify_trial(trial)
    return trial


def verify_trial(trial: Trial) -> None:
    """Raises BadRow if fields of a trial contradict each other, or a number cannot be a measured one."""
    if trial.status not in Status.__members__.values():
        raise BadRow(f"there is no status `{trial.status}`")
    if (trial.status == "ok") != (trial.seconds is not None):
        raise BadRow(f"its status is `{trial.status}`, and its time {trial.seconds}")
    for seconds in (*([] if trial.seconds is None else [trial.seconds]), *trial.times, *trial.at):
        if not SHORTEST <= seconds < math.inf:
            raise BadRow(f"a time of it is {seconds:g} s")
    if not all(map(math.isfinite, trial.features)):
        raise BadRow("a number of its loops is none")
    if not 0.0 < trial.scale < math.inf:
        raise BadRow(f"its scale is {trial.scale:g}")


def _text(name: str, value: object) -> str:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as e:
                raise BadRow(f"its {name} is not UTF-8 text") from e
        case int():
            raise BadRow(f"its {name} is {value} bytes long, and {MAX_TEXT} are read")
        case _:
            raise BadRow(f"it has no {name}")


# Migrates databases of earlier formats to the current one: each valid row is copied once. New columns are left empty, the
# seconds at each size before format 4; a task of format 2 gets the key that its program has now, and its trials the names
# that their traces use.


EARLIER: dict[int, tuple[str, tuple[Any, ...]]] = {
    1: (OLD_COLUMNS, ("", "", "{}", 0, "", 1.0, "", "[]", "[]", "[]")),
    2: (CONTENT_2, ("[]", "[]")),
    3: (CONTENT_3, ("[]",)),
}
"""The columns of earlier formats, and what rows have for the later ones: what is not known of them."""

_TEXT = "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END"


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Migrate a database of an earlier format to the current format; it is unchanged if that fails.

    A row that stands there twice, to the last digit of its date, is one. Rows that a table of SQLite's cannot hold, which
    only damage to the file makes, end here: no version could read them.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        replace_tables(connection, version)
        carried = _migrate_tasks(connection) if version == 2 else {}
        if version == 3:
            connection.execute("INSERT INTO workloads SELECT task_key, program FROM old_workloads")
            connection.execute("INSERT INTO targets SELECT fingerprint, facts FROM old_targets")
        columns, unknown = EARLIER[version]
        _, _, rest = columns.partition(", ")
        into = (
            f"INSERT INTO trials (id, {CONTENT}, digest) SELECT id, coalesce(?, task_key), {rest}, "
            f"{'?, ' * (len(unknown) + 1)}".rstrip(", ")
            + " FROM old_trials WHERE id = ? ON CONFLICT (digest) DO NOTHING"
        )
        values = ", ".join(_TEXT.format(name) for name in columns.split(", "))
        for number, *row in connection.execute(f"SELECT id, {values} FROM old_trials ORDER BY id").fetchall():
            key, names = carried.get(row[0], (None, None))
            new = unknown if names is None else (names, *unknown[1:])
            content = [row[0] if key is None else key, *row[1:], *new]
            try:
                connection.execute(into, (key, *new, _digest(number, content), number))
            except sqlite3.IntegrityError:
                continue
        for name in [n for n in _items(connection) if n.startswith("old_")]:
            connection.execute(f"DROP TABLE {name}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _migrate_tasks(connection: sqlite3.Connection) -> dict[object, tuple[str, str]]:
    """The key and the names of each task of format 2 by the bytes of its former key; one whose program cannot be read keeps
    that. The programs of tasks, and the facts of machines, stand in the new tables."""
    from tensorc_dsl.tuning.records.names import named  # late imports: few databases are of an earlier format

    connection.execute("INSERT OR IGNORE INTO targets SELECT fingerprint, facts FROM old_targets")
    found: dict[object, tuple[str, str]] = {}
    query = "SELECT CAST(task_key AS BLOB), CAST(program AS BLOB) FROM old_workloads ORDER BY rowid"
    for former, text in connection.execute(query).fetchall():
        key, program = former.decode("utf-8", "replace"), text.decode("utf-8", "replace")
        now = named(key, program)
        if now is not None:
            key = now.key
            found[former] = key, encode_names(now.names)
        connection.execute("INSERT OR IGNORE INTO workloads VALUES (?, ?)", (key, program))
    return found


def _digest(number: int, row: list[Any]) -> str:
    """As of a new row; of one whose texts are none it is its number."""
    try:
        texts = [v.decode() if isinstance(v, bytes) else v for v in row]
    except UnicodeDecodeError:
        return f"unreadable {number}"
    return row_digest(tuple(texts))
