"""The schema of a database of records, and the check that a file has it."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from tensorc_dsl.records import errors
from tensorc_dsl.records.mark import APPLICATION_ID

SCHEMA_VERSION = 2

OLD_COLUMNS = (
    "task_key, target_key, task, strategy, seed, trial, status, decisions, trace, program_key, seconds, times, "
    "message, max_error, build_seconds, run_seconds, phase, created, version"
)
"""Those of format 1."""

CONTENT = f"{OLD_COLUMNS}, run, fingerprint, modules, censored, cache, scale, columns, features"

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
    columns TEXT NOT NULL, features TEXT NOT NULL,
    digest TEXT NOT NULL,"""

_SCHEMA = f"""{_TABLE.format(more=_MORE)}
CREATE UNIQUE INDEX trials_by_digest ON trials (digest);
CREATE TABLE workloads (
    task_key TEXT PRIMARY KEY, workload TEXT NOT NULL, program TEXT NOT NULL
) STRICT;
CREATE TABLE targets (
    fingerprint TEXT PRIMARY KEY, facts TEXT NOT NULL
) STRICT;
"""

_SCHEMAS = {1: _TABLE.format(more=""), SCHEMA_VERSION: _SCHEMA}


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
    if version not in _SCHEMAS:
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


def replace_tables(connection: sqlite3.Connection) -> None:
    """The tables are new and empty afterwards, and those of format 1 are called `old_trials`; in a transaction."""
    connection.execute("ALTER TABLE trials RENAME TO old_trials")
    connection.execute("DROP INDEX trials_by_task")
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
        connection.executescript(_SCHEMAS[version])
        return _items(connection)
    finally:
        connection.close()


def _items(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Tables, indices, triggers and views by name, but for SQLite's own: what each is, and its words."""
    query = "SELECT name, type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    return {str(name): (str(kind), " ".join(str(sql).split())) for name, kind, sql in connection.execute(query)}


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
