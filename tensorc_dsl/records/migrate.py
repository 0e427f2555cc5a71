"""Migrates databases from format 1 to the current one: each valid row is copied once, and new columns are left empty."""

from __future__ import annotations

import sqlite3
from typing import Any

from tensorc_dsl.records.rows import row_digest
from tensorc_dsl.records.schema import CONTENT, OLD_COLUMNS, SCHEMA_VERSION, replace_tables

_UNKNOWN: tuple[Any, ...] = ("", "", "{}", 0, "", 1.0, "", "[]")
"""The facts of a row of format 1 about its search, machine and modules, of being cut short, of caches, of its scale, and of
its loops."""

_TEXT = "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END"


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a database of format 1 to the current format; it is unchanged if that fails.

    A row that stands there twice, to the last digit of its date, is one. Rows that a table of SQLite's cannot hold, which
    only damage to the file makes, end here: no version could read them.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        replace_tables(connection)
        into = (
            f"INSERT INTO trials (id, {CONTENT}, digest) SELECT id, {OLD_COLUMNS}, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM old_trials "
            "WHERE id = ? ON CONFLICT (digest) DO NOTHING"
        )
        values = ", ".join(_TEXT.format(name) for name in OLD_COLUMNS.split(", "))
        for number, *row in connection.execute(f"SELECT id, {values} FROM old_trials ORDER BY id").fetchall():
            try:
                connection.execute(into, (*_UNKNOWN, _digest(number, row), number))
            except sqlite3.IntegrityError:
                continue
        connection.execute("DROP TABLE old_trials")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _digest(number: int, row: list[Any]) -> str:
    """As of a new row; of one whose texts are none it is its number."""
    try:
        texts = [v.decode() if isinstance(v, bytes) else v for v in row]
    except UnicodeDecodeError:
        return f"unreadable {number}"
    return row_digest((*texts, *_UNKNOWN))
