"""Trials that the database refuses wait, and none is lost during the run."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import filelock
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.tuning.records import errors
from tensorc_dsl.tuning.records.database import Database, Queue, Unkept
from tests.records.test_database import TRIAL

BIG = replace(TRIAL, trace="x" * 40_000)


def lost(queue: Queue) -> Unkept | None:
    return queue.unkept


def test_what_waits_is_recorded_when_there_is_room_again(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "r.sqlite")
    with Queue(lambda: database) as queue:
        queue.add_all([TRIAL])
        assert lost(queue) is None
        (pages,) = database._connection.execute("PRAGMA page_count").fetchone()
        database._connection.execute(f"PRAGMA max_page_count = {pages}")
        for n in (1, 2, 4):
            queue.add_all([replace(BIG, trial=n)])
        unkept = lost(queue)
        assert unkept is not None
        assert [d.code for d in unkept.why] == ["E0704"]
        assert str(unkept) == "3 records could not be kept: trials 2 to 3, 5"
        assert len(database.trials("t1", "m1")) == 1
        database._connection.execute("PRAGMA max_page_count = 100000")
        queue.add_all([replace(BIG, trial=5)])
        assert lost(queue) is None
        assert [t.trial for t in database.trials("t1", "m1")] == [0, 1, 2, 4, 5]


def test_a_database_on_a_full_disk_is_opened_when_there_is_room(tmp_path: Path) -> None:
    path, room = tmp_path / "r.sqlite", list[bool]()

    def opened() -> Database:
        if not room:
            raise errors.disk_full(path)
        return Database.open(path)

    with Queue(opened) as queue:
        assert queue.unkept is not None and queue.unkept.trials == ()
        queue.add_all([TRIAL])
        assert str(queue.unkept) == "1 record could not be kept: trial 1"
        room.append(True)
        queue.add_all([replace(TRIAL, trial=1)])
        assert queue.unkept is None
    with Database.open(path) as database:
        assert [t.trial for t in database.trials("t1", "m1")] == [0, 1]


@pytest.mark.parametrize(("free", "code"), [(0, "E0704"), (1 << 30, "E0703")])
def test_an_error_of_the_disk_is_a_full_one_where_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, code: str
) -> None:
    """SQLite maps a file beside the database when it opens it, and has no word for a disk without room for that."""
    e = sqlite3.OperationalError("disk I/O error")
    e.sqlite_errorcode = sqlite3.SQLITE_IOERR | 19 << 8
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(TschedError, match=code), errors.explained(tmp_path / "r.sqlite", 1.0):
        raise e


def test_what_is_no_database_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("hello, I am a text file\n" * 100)
    with pytest.raises(TschedError, match="E0702"):
        Queue(partial(Database.open, tmp_path / "notes"))


def test_a_lock_that_others_hold_costs_no_trial(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Queue(partial(Database.open, path, wait=0.05)) as queue:
        with filelock.FileLock(f"{path}.lock"):
            queue.add_all([TRIAL])
            assert queue.unkept is not None
            assert [d.code for d in queue.unkept.why] == ["E0705"]
        queue.add_all([])
        assert queue.unkept is None


def test_what_is_lost_is_told_apart() -> None:
    final = replace(TRIAL, phase="final", trial=6)
    found = Unkept((replace(TRIAL, trial=2), final, replace(final, trial=3)), ())
    assert str(found) == "3 records could not be kept: trial 3, and in the comparison at the end trials 4, 7"


def test_a_file_that_is_missing_is_made_with_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "new" / "r.sqlite"
    with Queue.at(path) as queue:
        assert queue.unkept is None
        assert list(queue.kept("t1", "m1")) == []
        assert list(tmp_path.iterdir()) == []
        queue.add_all([TRIAL])
        assert queue.unkept is None
    with Database.open(path) as database:
        assert len(database.trials("t1", "m1")) == 1


def test_a_queue_without_records_leaves_no_file(tmp_path: Path) -> None:
    with Queue.at(tmp_path / "new" / "r.sqlite") as queue:
        queue.add_all([])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/proc/r.sqlite", "notes/r.sqlite", "notes/new/r.sqlite"])
def test_a_place_that_takes_no_file_is_refused_at_once(tmp_path: Path, path: str) -> None:
    (tmp_path / "notes").write_text("hello")
    with pytest.raises(TschedError, match="E0703"):
        Queue.at(tmp_path / path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes"]


def test_a_folder_without_room_is_opened_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.sqlite"

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tensorc_dsl.tuning.records.database.try_place", full)
    with Queue.at(path) as queue:
        assert queue.unkept is not None and [d.code for d in queue.unkept.why] == ["E0704"]
        queue.add_all([TRIAL])
        assert queue.unkept is None
