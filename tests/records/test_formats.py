"""Tests of earlier database formats: files of earlier versions are read and migrated without loss."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.tuning.records.database import Database, salvaged
from tensorc_dsl.tuning.records.errors import APPLICATION_ID
from tensorc_dsl.tuning.records.schema import CONTENT_3, SCHEMA_VERSION, SCHEMAS, row_digest, to_row
from tensorc_dsl.tuning.records.trial import Subject, Trial, digest
from tests.records.test_database import TRIAL

FORMAT_1 = (Path(__file__).parent / "old" / "1.sql").read_text(encoding="utf-8")
"""What the code of format 1 wrote: a search of two trials, one that crashed, and a finalist."""


def old(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.executescript("PRAGMA journal_mode = WAL;" + FORMAT_1 + "".join(statements))
    return path


def rows(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute("SELECT * FROM trials ORDER BY id").fetchall()


def test_a_file_of_format_1_is_carried_over_with_all_that_it_holds(tmp_path: Path) -> None:
    path = old(tmp_path / "r.sqlite")
    with Database.open(path) as db:
        found = db.trials("task", "machine")
    assert [(t.trial, t.phase, t.status, t.seconds, t.times) for t in found] == [
        (0, "trial", "ok", 0.0015, (0.0015, 0.0016)),
        (1, "trial", "crash", None, ()),
        (0, "final", "ok", 0.0014, (0.0014,)),
    ]
    first, second, _ = found
    assert first.decisions == {"tile": (4, 8), "wide": 2**70, "fast": True}
    assert (first.created, first.version, second.message) == (1700000000.25, "0.1.0", "SIGSEGV")
    assert (first.run, first.fingerprint, first.modules, first.censored, first.scale) == ("", "", {}, False, 1.0)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    with Database.open(path) as db:
        assert db.trials("task", "machine") == found
        db.add(TRIAL)
        assert db.trials("t1", "m1") == (TRIAL,)


def test_reading_a_file_of_format_1_leaves_it_as_it_was(tmp_path: Path) -> None:
    path = old(tmp_path / "r.sqlite")
    before = rows(path)
    database = Database.reading(path)
    assert database is not None
    with database:
        best = database.best("task", "machine")
        assert best is not None and best.seconds == 0.0014
    assert rows(path) == before
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_damaged_row_of_format_1_is_carried_over_as_it_is(tmp_path: Path) -> None:
    path = old(tmp_path / "r.sqlite", "UPDATE trials SET decisions = 'x' WHERE id = 1;")
    with Database.open(path) as db:
        ranking = db.ranking("task", "machine")
    assert [p.row for p in ranking.passed] == [1]
    assert [r[8] for r in rows(path)][:1] == ["x"]


def test_a_file_that_only_says_it_is_of_format_1_is_left_alone(tmp_path: Path) -> None:
    path = old(tmp_path / "r.sqlite", "CREATE TRIGGER x AFTER INSERT ON trials BEGIN DELETE FROM trials; END;")
    before = rows(path)
    with pytest.raises(TschedError, match="E0702"):
        Database.open(path)
    assert rows(path) == before


def test_a_disk_too_full_to_carry_over_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old(tmp_path / "r.sqlite", _many(400))
    before = rows(path)
    connect = sqlite3.connect

    def small(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[arg-type]
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", small)
        with pytest.raises(TschedError, match="E0704"):
            Database.open(path)
    assert rows(path) == before
    with Database.open(path) as db:
        assert len(db.trials("task", "machine")) == len(before)


def _many(count: int) -> str:
    return (
        f"WITH RECURSIVE n(value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n WHERE value < {count})"
        " INSERT INTO trials SELECT NULL, task_key, target_key, task, strategy, seed, value, status, decisions,"
        " trace || printf('%0500d', value), program_key, seconds, times, message, max_error, build_seconds, run_seconds,"
        " phase, created, version FROM trials, n WHERE trials.id = 1;"
    )


FULL = replace(
    TRIAL, run="r" * 32, fingerprint="f" * 32, modules={"module std.cpu.tile": "a" * 32}, censored=True, cache="warm",
    scale=1.5, at=(0.001, 0.003),
)  # fmt: skip


def test_all_that_a_trial_knows_comes_back(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        db.add(FULL)
        (found,) = db.trials("t1", "m1")
    assert found == FULL
    assert isinstance(found, Trial)


def test_a_file_of_format_3_is_carried_over_without_times_at_sizes(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    subject = Subject("t1", "program t() {}", digest("{}"), "{}")
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.executescript(f"{SCHEMAS[3]} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 3;")
        row = to_row(FULL)[:-2]
        marks = ", ".join("?" * (len(row) + 1))
        raw.execute(f"INSERT INTO trials ({CONTENT_3}, digest) VALUES ({marks})", (*row, row_digest(row)))
        raw.execute("INSERT INTO workloads VALUES (?, ?)", (subject.task_key, subject.program))
        raw.execute("INSERT INTO targets VALUES (?, ?)", (subject.fingerprint, subject.facts))
    trials, subjects = salvaged(path)
    assert trials == [replace(FULL, at=())] and {x.facts for x in subjects} == {"{}"}
    with Database.open(path) as db:
        assert db.trials("t1", "m1") == (replace(FULL, at=()),)
        db.add(FULL)
        assert db.trials("t1", "m1") == (replace(FULL, at=()), FULL)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert raw.execute("SELECT program FROM workloads").fetchall() == [(subject.program,)]
        assert raw.execute("SELECT facts FROM targets").fetchall() == [("{}",)]
