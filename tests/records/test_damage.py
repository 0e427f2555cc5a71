"""Of a damaged database the records before and after the damage are read, and none that is not as it was written."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records.database import Database, salvaged
from tensorc_dsl.tuning.records.trial import Trial, subject
from tests.records.test_database import TRIAL

PAGE = 4096
INTERIOR = 0x05
"""The kind of a page that refers to pages with rows: https://www.sqlite.org/fileformat2.html."""
COUNT = 60

TASK = tensorc_dsl.loads("use std.ops.{matmul}\nuse std.cpu\ntask t = matmul(M=8, N=8, K=8)\n", threads=1)["t"]


def trials() -> list[Trial]:
    """Long texts are on pages of their own, and numbers of all sizes are written in several ways."""
    rng = random.Random(0)
    found: list[Trial] = []
    for n in range(COUNT):
        long = "é" * rng.choice([0, 10, 3000, 9000])
        trial = replace(
            TRIAL, trial=n, seed=rng.choice([0, 1, -1, 300, 2**40, 2**63 - 1]), message=long, created=n + 1.0
        )
        if n % 5 == 0:
            trial = replace(trial, status="crash", seconds=None, times=(), max_error=None, build_seconds=2.0)
        found.append(replace(trial, fingerprint="x", task_key=str(n % 3), version="1"))
    return found


def made(path: Path, *, close: bool = True) -> Database:
    """A database with all of them, in several transactions."""
    database = Database.open(path)
    all_of = trials()
    for n in range(0, COUNT, 20):
        database.add_all(all_of[n : n + 20], [subject(TASK.program, TASK.target, 1)])
    if close:
        database.close()
    return database


def known(path: Path) -> list[Trial]:
    """The records that are read; each is as it was written."""
    wanted = {t.trial: t for t in trials()}
    found, _ = salvaged(path)
    for t in found:
        assert (t, t.created, t.version) == (wanted[t.trial], wanted[t.trial].created, "1")
    return found


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_nothing_is_lost_without_damage(tmp_path: Path) -> None:
    made(tmp_path / "r.sqlite")
    assert known(tmp_path / "r.sqlite") == trials()
    _, subjects = salvaged(tmp_path / "r.sqlite")
    assert {s.program for s in subjects} == {"", subject(TASK.program, TASK.target, 1).program}


def test_records_in_the_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with made(path, close=False):
        assert (tmp_path / "r.sqlite-wal").stat().st_size
        assert known(path) == trials()


@pytest.mark.parametrize("size", [512, 1024, 65536])
def test_pages_of_other_sizes(tmp_path: Path, size: int) -> None:
    path = tmp_path / "r.sqlite"
    made(path)
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode = DELETE")
    raw.execute(f"PRAGMA page_size = {size}")
    raw.execute("VACUUM")
    raw.close()
    assert known(path) == trials()


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(40))
def test_a_lost_page_takes_only_its_own_records(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "r.sqlite"
    made(path)
    data = bytearray(whole := path.read_bytes())
    rng = random.Random(seed)
    pages = len(data) // PAGE
    lost = rng.sample(range(pages), rng.choice([1, 1, 3]))
    for n in lost:
        kind = rng.choice(["zeros", "noise", "few"])
        noise = bytes(PAGE) if kind == "zeros" else rng.randbytes(PAGE)
        start, end = (0, PAGE) if kind != "few" else (at := rng.randrange(PAGE - 40), at + 40)
        data[n * PAGE + start : n * PAGE + end] = noise[start:end]
    path.write_bytes(data)
    found = known(path)
    # A row is on one page, or on four with a long text; a page has up to a dozen.
    if len(lost) == 1 and data[0] and whole[lost[0] * PAGE] != INTERIOR:
        assert len(found) >= COUNT - 13


def test_a_damaged_database_is_called_so_and_what_can_be_read_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(Path("r.sqlite"))
    whole = Path("r.sqlite").read_bytes()
    leaf = next(n for n in range(PAGE, len(whole), PAGE) if whole[n] == 0x0D and whole[n + 4] > 3)
    schemaless = whole[:100] + bytes(PAGE - 100) + whole[PAGE:]
    for name, data in (
        ("a leaf.sqlite", whole[:leaf] + bytes(PAGE) + whole[leaf + PAGE :]),
        ("schema.sqlite", schemaless),
    ):
        Path(name).write_bytes(data)
        for words in (("db", "list"), ("db", "export")):
            said = call(*words, "--records", name)
            assert said.exit_code == 1 and f"error[E0715]: the database of records `{name}` is damaged" in said.stderr
        command = f"tensorc-dsl db merge {name if name != 'a leaf.sqlite' else repr(name)} --records NEW.sqlite"
        assert command in said.stderr
        merged = call("db", "merge", name, "--records", f"new.{name}")
        assert merged.exit_code == 0 and "W0704" in merged.stderr
        count = len(known(Path(name)))
        assert 0 < count <= COUNT if name == "a leaf.sqlite" else not count
        assert f"{count or 'no'} records added" in merged.stdout
        assert Path(name).read_bytes() == data
        assert call("db", "list", "--records", f"new.{name}").exit_code == 0
        again = call("db", "merge", "r.sqlite", "--records", f"new.{name}")
        assert f"{COUNT - count} record" in again.stdout or count == COUNT


@pytest.mark.parametrize(
    "data", [bytes(PAGE), bytes(512) + b"\x0d" * 3584, b"x" * 100, random.Random(1).randbytes(1 << 16)]
)
def test_what_has_no_records_is_no_damaged_database(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "r.sqlite").write_bytes(data)
    with pytest.raises(TschedError, match="E0702"):
        Database.open(tmp_path / "r.sqlite")
