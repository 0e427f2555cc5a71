"""A database that cannot be written is reported first: before the file is read and the machine measured."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import tensorc_dsl
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.tuning.records.database import Database
from tests.cli.test_endings import COMMAND, FILE
from tests.cli.test_start import HEAVY, loaded
from tests.started import ALONE

NEEDED = {"msgspec", "sqlite3", "importlib.metadata"}
"""Of what is heavy, that which a database takes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f.tsched").write_text(FILE)
    return tmp_path


def damage(path: Path) -> None:
    with Database.open(path):
        pass
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))


def write_words(path: Path) -> None:
    path.write_text("hello, I am a text file\n" * 100)


def use_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()


@pytest.mark.parametrize("spoil", [damage, write_words, use_another_program, Path.mkdir])
def test_what_is_no_database_is_told_before_the_file_is_read(folder: Path, spoil: object) -> None:
    assert callable(spoil)
    spoil(folder / "r.sqlite")
    status, modules = loaded(folder, "tune", "f.tsched", "--records", "r.sqlite")
    assert status == 1
    assert not (HEAVY - NEEDED) & modules
    assert "tensorc_dsl.faces.api.tasks" not in modules


@pytest.mark.parametrize("file", ["/proc/r.sqlite", "f.tsched/r.sqlite"])
def test_a_folder_that_takes_no_file_is_told_before_the_file_is_read(folder: Path, file: str) -> None:
    status, modules = loaded(folder, "tune", "f.tsched", "--records", file)
    assert status == 1
    assert "tensorc_dsl.faces.api.tasks" not in modules


def tuned(folder: Path, file_bytes: int) -> tuple[int, str]:
    program = COMMAND.format(patched="", moment=ALONE)
    command = [sys.executable, "-c", program, str(file_bytes), "tune", "f.tsched", "--trials", "1", "--threads", "1",
               "--records", "r.sqlite"]  # fmt: skip
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=300)
    return done.returncode, done.stderr


def test_a_database_that_takes_no_record_is_told_before_the_file_is_read(folder: Path) -> None:
    """SQLite opens it without a word."""
    with Database.open(folder / "r.sqlite"):
        pass
    status, err = tuned(folder, 1000)
    assert status == 1
    assert err.startswith("reading f.tsched\nerror[E0703]: cannot write records to `r.sqlite`: ")


def test_a_file_that_may_only_be_read_takes_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.sqlite"
    with Database.open(path):
        pass
    connect = sqlite3.connect

    def as_it_may(file: Path, **options: object) -> sqlite3.Connection:
        return connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)

    monkeypatch.setattr(sqlite3, "connect", as_it_may)
    with pytest.raises(TschedError, match=r"E0703: .*cannot write records"):
        Database.open(path)


FULL = f"""\
import sys
from tensorc_dsl.tuning.records import errors
from tensorc_dsl.tuning.records.database import Database
def full(path):
    raise errors.disk_full(path)
Database.open = Database.require_place = full
{ALONE}from tensorc_dsl.faces.cli.main import main; main()
"""


@pytest.mark.corpus("outputs that fail")
def test_a_full_disk_is_told_once_and_before_anything_is_measured(folder: Path) -> None:
    command = [
        sys.executable,
        "-c",
        FULL,
        "tune",
        "f.tsched",
        "--trials",
        "2",
        "--threads",
        "1",
        "--records",
        "r.sqlite",
    ]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=300)
    line = "records wait, and are offered again with each trial: no room to write records to `r.sqlite`\n"
    assert done.stderr.startswith(f"reading f.tsched\n{line}measuring what this machine can do on 1 thread\n")
    assert done.stderr.count(line) == 1
    # A trial that other work disturbed is measured once more.
    (count, again) = re.findall(
        r"(\d+) records could not be kept: trials 1 to 2,(.*) and in the comparison", done.stderr
    )[0]
    assert int(count) == 4 + len(re.findall(r"\d", again))


def test_python_hears_of_records_before_anything_is_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the machine was measured")

    monkeypatch.setattr("tensorc_dsl.faces.api.searching.roof_of", never)
    write_words(folder / "r.sqlite")
    with pytest.raises(TschedError, match="E0702"):
        tensorc_dsl.load(folder / "f.tsched")["endless"].tune(trials=1, records=folder / "r.sqlite", progress=True)


ONCE = f"""\
import sys
from tensorc_dsl.faces.api import searching
def never(*_):
    raise AssertionError("the machine was measured twice before the search")
searching.roof_of = never
{ALONE}from tensorc_dsl.faces.cli.main import main; main()
"""


@pytest.mark.corpus
def test_the_machine_is_measured_once_before_a_search(folder: Path) -> None:
    command = [
        sys.executable,
        "-c",
        ONCE,
        "tune",
        "f.tsched",
        "--trials",
        "1",
        "--threads",
        "1",
        "--records",
        "r.sqlite",
    ]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=300)
    assert "measured twice" not in done.stderr
    assert "building the first 1 program" in done.stderr


@pytest.mark.corpus
@pytest.mark.parametrize("arguments", [("f.tsched", "endles"), ("g.tsched",), ("f.tsched", "--replay", "none.tsched")])
def test_a_search_that_does_not_begin_leaves_no_database(folder: Path, arguments: tuple[str, ...]) -> None:
    status, _ = loaded(folder, "tune", *arguments, "--records", "new/r.sqlite")
    assert status == 1
    assert {p.name for p in folder.iterdir()} == {"f.tsched", "modules"}
