"""Files that no search has written: each ends in an error with a code or in a warning, and is not changed."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import resource
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records import database as files
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.schema import MAX_TEXT
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key

FILE = """\
compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }
compute other(A: f32[M]) -> B: f32[M] { B[i] = A[i] + 1.0 }
schedule marked for copy { let mark ~ sample_categorical([1, 2, 3]); annotate(B, "mark", mark) }
task t = copy(M=64) with marked
"""


def trace(mark: int) -> str:
    return f'schedule s for copy {{ annotate(B, "mark", {mark}) }}'


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.chdir(tmp_path)
    Path("f.tsched").write_text(FILE, encoding="utf-8")
    return tensorc_dsl.load("f.tsched", threads=1)["t"]


def record(task: Task, number: int, seconds: float, text: str) -> Trial:
    keys = program_key(task.program), target_key(task.target, 1)
    return Trial(*keys, "t", "random", 0, number, "ok", {}, text, f"p{number}", seconds, (seconds,))


@pytest.fixture
def database(task: Task) -> Path:
    """Two records: the first is to be spoiled, the second is slower."""
    with Database.open(Path("r.sqlite")) as db:
        db.add_all([record(task, 1, 1e-6, trace(1)), record(task, 2, 2e-6, trace(2))])
    return Path("r.sqlite")


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for statement in statements:
            raw.executescript(statement)


def unguarded(path: Path, statement: str) -> None:
    """As a page of the file may be damaged: the table takes any value while it is changed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        words = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'trials'").fetchone()[0]
        version = raw.execute("PRAGMA schema_version").fetchone()[0]
        raw.execute("PRAGMA writable_schema = ON")
        loose = re.sub(r"(TEXT|REAL|INTEGER)( NOT NULL)?(?! PRIMARY)", "BLOB", words).replace(" STRICT", "")
        raw.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'trials'", (loose,))
        raw.execute(f"PRAGMA schema_version = {version + 1}")
    spoil(path, f"PRAGMA ignore_check_constraints = ON; {statement}")
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'trials'", (words,))
        raw.execute(f"PRAGMA schema_version = {version + 2}")


def used(task: Task, path: Path) -> tuple[str, list[Diagnostic]]:
    """The trace that `run` would take, and the warnings."""
    told: list[Diagnostic] = []
    found = task.recorded(path, on_warning=told.append)
    return found.text if found else "", told


ROWS = {
    "a negative time": "seconds = -1.0",
    "no time at all": "seconds = 0.0",
    "endless": "seconds = 9e999",
    "an impossible time": "seconds = 1e-300",
    "no text": "trace = ''",
    "another task": "trace = 'schedule s for other { }'",
    "no such compute": "trace = 'schedule s for gone { }'",
    "no such step": "trace = 'schedule s for copy { gone(B) }'",
    "a step that is refused": "trace = 'schedule s for copy { vectorize(B.loops[0]); vectorize(B.loops[0]) }'",
    "two schedules": "trace = 'schedule s for copy { } schedule r for copy { }'",
    "a program": "trace = 'program p(A: f32[8]) { }'",
    "a task": "trace = 'task t = copy(M=64)'",
    "no UTF-8": "trace = CAST(x'ff00fe' AS TEXT)",
    "zeros": "trace = CAST(zeroblob(100) AS TEXT)",
    "a text of 100 MB": "trace = CAST(zeroblob(100000000) AS TEXT)",
    "a message of 100 MB": "message = CAST(zeroblob(100000000) AS TEXT)",
    "no JSON": "decisions = '{'",
    "JSON of another kind": "decisions = '[1, 2]'",
    "deep JSON": f"decisions = '{'[' * 100_000}'",
    "times of another kind": "times = '[\"x\"]'",
    "times that are none": "times = '[-1.0]'",
    "another phase": "phase = 'later'",
}

DAMAGED = {
    "a blob for a text": "trace = x'00ff'",
    "a number for a text": "trace = 17",
    "no trace": "trace = NULL",
    "a text for a time": "seconds = 'soon'",
    "a blob for a time": "seconds = x'ff'",
    "ok without a time": "seconds = NULL",
    "a text for a number": "seed = 'x'",
    "no phase": "phase = NULL",
    "a status without time": "status = 'crash'",
    "no decisions": "decisions = NULL",
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", [*ROWS, *DAMAGED])
def test_a_row_that_cannot_be_used_is_passed_over(task: Task, database: Path, name: str) -> None:
    where = "WHERE trial = 1"
    if name in ROWS:
        spoil(database, f"UPDATE trials SET {ROWS[name]} {where}")
    else:
        unguarded(database, f"UPDATE trials SET {DAMAGED[name]} {where}")
    text, (warning,) = used(task, database)
    assert 'annotate(B, "mark", 2)' in text
    assert warning.code == "W0701"
    assert "`r.sqlite`" in warning.message
    assert "row 1: " in warning.notes[0].text


def test_all_good_rows_give_no_warning(task: Task, database: Path) -> None:
    text, told = used(task, database)
    assert 'annotate(B, "mark", 1)' in text
    assert told == []


def test_many_bad_rows_are_one_warning_and_an_end(task: Task, database: Path) -> None:
    with Database.open(database) as db:
        db.add_all([record(task, n, 1e-7, "gone") for n in range(10, 300)])
    text, (warning,) = used(task, database)
    assert text == ""
    assert len(warning.notes[0].text.splitlines()) == 6


def test_the_warning_of_a_call_from_python(task: Task, database: Path) -> None:
    spoil(database, "UPDATE trials SET seconds = -1.0 WHERE trial = 1")
    with pytest.warns(UserWarning, match="W0701"):
        task.recorded(database)


def test_a_long_text_is_not_recorded(task: Task) -> None:
    with Database.open(Path("r.sqlite")) as db:
        db.add(replace(record(task, 1, 1e-6, trace(1)), status="crash", seconds=None, message="é\udcff" * MAX_TEXT))
        (found,) = db.trials(*(program_key(task.program), target_key(task.target, 1)))
    assert len(found.message.encode()) <= MAX_TEXT
    assert found.message.startswith("é\\udcff")


SCHEMAS = {
    "a column is gone": "ALTER TABLE trials DROP COLUMN version",
    "a column more": "ALTER TABLE trials ADD COLUMN more TEXT",
    "a column of another name": "ALTER TABLE trials RENAME COLUMN phase TO stage",
    "the table is gone": "DROP TABLE trials",
    "the index is gone": "DROP INDEX trials_by_task",
    "a view for the table": "ALTER TABLE trials RENAME TO rows; CREATE VIEW trials AS SELECT * FROM rows",
    "a view": "CREATE VIEW v AS SELECT 1",
    "a trigger": "CREATE TRIGGER x AFTER INSERT ON trials BEGIN DELETE FROM trials; END",
    "another table": "CREATE TABLE x (y)",
    "another program's": "PRAGMA application_id = 7",
    "no program's": "PRAGMA application_id = 0",
    "no format": "PRAGMA user_version = 0",
    "a format below all": "PRAGMA user_version = -5",
    "a table of other types": "DROP TABLE trials; CREATE TABLE trials (id INTEGER PRIMARY KEY, task_key, target_key)",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_foreign_schema_is_an_error(task: Task, database: Path, name: str) -> None:
    spoil(database, SCHEMAS[name])
    before = database.read_bytes()
    for use in (lambda: Database.open(database), lambda: used(task, database)):
        with pytest.raises(TschedError) as caught:
            use()
        assert caught.value.diagnostics[0].code == "E0702"
    assert database.read_bytes() == before


def test_a_format_from_the_future_is_told_as_one(task: Task, database: Path) -> None:
    spoil(database, "PRAGMA user_version = 99")
    with pytest.raises(TschedError) as caught:
        used(task, database)
    assert caught.value.diagnostics[0].code == "E0701"


REFUSES = "CREATE TRIGGER x AFTER INSERT ON trials BEGIN SELECT RAISE(ABORT, 'no'); END"


@pytest.mark.parametrize("statement", ["DROP TABLE trials", SCHEMAS["a column is gone"], REFUSES])
def test_a_schema_that_changes_while_we_run(task: Task, database: Path, statement: str) -> None:
    with Database.open(database) as db:
        spoil(database, statement)
        with pytest.raises(TschedError) as caught:
            db.add(record(task, 3, 1.0, trace(3)))
        assert caught.value.diagnostics[0].code == "E0702"


@pytest.mark.parametrize("at", range(0, 8192, 512))
def test_damaged_pages(task: Task, database: Path, at: int) -> None:
    data = bytearray(database.read_bytes())
    data[at : at + 512] = b"\xa5" * len(data[at : at + 512])
    database.write_bytes(data)
    codes: list[str] = []
    try:
        used(task, database)
    except TschedError as e:
        codes = [d.code for d in e.diagnostics]
    assert codes in ([], ["E0701"], ["E0702"], ["E0715"])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@contextmanager
def special(kind: str) -> Iterator[Path]:
    path = Path("special")
    match kind:
        case "null":
            yield Path("/dev/null")
        case "zero":
            yield Path("/dev/zero")
        case "pipe":
            os.mkfifo(path)
            yield path
        case "folder":
            path.mkdir()
            yield path
        case "socket":
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(str(path))
                yield path
        case "link":
            path.symlink_to("/dev/null")
            yield path
        case "large":
            with path.open("wb") as file:
                file.truncate(1 << 40)
            yield path
        case _:
            path.write_bytes(b"SQLite format 3\0" + b"\xff" * 84)
            yield path


@pytest.mark.parametrize("kind", ["null", "zero", "pipe", "folder", "socket", "link", "large", "header"])
@pytest.mark.parametrize("command", ["run", "tune"])
def test_what_can_be_no_database_is_left_alone(task: Task, kind: str, command: str) -> None:
    with special(kind) as path:
        around = {path.parent, Path()}
        before = {p for folder in around for p in folder.iterdir() if p.parent != Path("/dev") or "null" in p.name}
        result = run(command, "f.tsched", "t", "--threads", "1", "--records", str(path))
        assert result.exit_code == 1, result.output
        assert "error[E070" in result.stderr
        after = {p for folder in around for p in folder.iterdir() if p.parent != Path("/dev") or "null" in p.name}
        assert after == before


@contextmanager
def unprivileged() -> Iterator[None]:
    """For who may write anywhere, permissions say nothing."""
    privileged = os.geteuid() == 0
    if privileged:
        os.seteuid(65534)
    try:
        yield
    finally:
        if privileged:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everyone may look into."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_reading_needs_no_right_to_write(task: Task, open_folder: Path) -> None:
    path = open_folder / "r.sqlite"
    with Database.open(path) as db:
        db.add(record(task, 1, 1e-6, trace(1)))
    (open_folder / "r.sqlite.lock").unlink()
    open_folder.chmod(0o555)
    path.chmod(0o444)
    with unprivileged():
        assert 'annotate(B, "mark", 1)' in used(task, path)[0]
        with pytest.raises(TschedError) as caught:
            Database.open(path)
        assert caught.value.diagnostics[0].code == "E0703"
    assert [p.name for p in open_folder.iterdir()] == ["r.sqlite"]
    open_folder.chmod(0o755)


@pytest.mark.parametrize("index", [True, False])
def test_reading_sees_what_stands_in_the_log(task: Task, open_folder: Path, index: bool) -> None:
    path = open_folder / "r.sqlite"
    with Database.open(Path("w.sqlite")) as db:
        db.add(record(task, 1, 1e-6, trace(1)))
        for end in ("", "-wal", *(["-shm"] if index else [])):
            (open_folder / f"r.sqlite{end}").write_bytes(Path(f"w.sqlite{end}").read_bytes())
            (open_folder / f"r.sqlite{end}").chmod(0o444)
    open_folder.chmod(0o555)
    with unprivileged():
        assert 'annotate(B, "mark", 1)' in used(task, path)[0]
    open_folder.chmod(0o755)


def test_a_file_that_may_not_be_read(task: Task, open_folder: Path) -> None:
    path = open_folder / "r.sqlite"
    with Database.open(path) as db:
        db.add(record(task, 1, 1e-6, trace(1)))
    path.chmod(0)
    with unprivileged(), pytest.raises(TschedError) as caught:
        used(task, path)
    assert caught.value.diagnostics[0].code == "E0708"


def test_a_copy_of_no_one_moment_is_none(task: Task, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(range(100))
    monkeypatch.setattr(files, "_state", lambda _: next(states))
    with pytest.raises(TimeoutError):
        files._copied(database)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow; existing ones are read."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("logged", [True, False])
def test_a_full_disk_is_read(task: Task, tmp_path: Path, logged: bool) -> None:
    path = tmp_path / "r.sqlite"
    with Database.open(Path("w.sqlite")) as db:
        db.add(record(task, 1, 1e-6, trace(1)))
        for end in ("", "-wal") if logged else ():
            (tmp_path / f"r.sqlite{end}").write_bytes(Path(f"w.sqlite{end}").read_bytes())
    if not logged:
        path.write_bytes(Path("w.sqlite").read_bytes())
    with full_disk():
        assert 'annotate(B, "mark", 1)' in used(task, path)[0]
        listed = run("db", "list", "--records", str(path))
        assert listed.exit_code == 0 and "1.00 µs" in listed.stdout, listed.output


@pytest.mark.parametrize("seed", range(30))
def test_a_log_is_applied_as_sqlite_does(tmp_path: Path, seed: int) -> None:
    """Logs of several commits, that begin again after a checkpoint, are cut off anywhere, or have a bit turned over."""
    draw = random.Random(seed)
    path, copy = tmp_path / "w.sqlite", tmp_path / "r.sqlite"
    log = tmp_path / "w.sqlite-wal"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {draw.choice((512, 4096, 65536))}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        for _ in range(draw.randrange(1, 30)):
            match draw.randrange(6):
                case 0:
                    db.execute("DELETE FROM t WHERE a % 3 = ?", (draw.randrange(3),))
                case 1:
                    db.execute("PRAGMA wal_checkpoint(RESTART)")
                case 2:
                    db.execute("VACUUM")
                case _:
                    rows = [("x" * draw.randrange(3000),) for _ in range(draw.randrange(1, 20))]
                    db.execute("BEGIN")
                    db.executemany("INSERT INTO t (b) VALUES (?)", rows)
                    db.execute("COMMIT")
        data, written = path.read_bytes(), bytearray(log.read_bytes())
    match draw.randrange(3):
        case 0:
            del written[draw.choice((draw.randrange(40), draw.randrange(len(written) + 1))) :]
        case 1 if written:
            written[draw.randrange(len(written))] ^= 1 << draw.randrange(8)
        case _:
            pass
    copy.write_bytes(data)
    copy.with_name("r.sqlite-wal").write_bytes(written)
    query = "SELECT * FROM t ORDER BY a"
    found: list[object] = []
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.deserialize(files.without_log(data, bytes(written)))
        try:
            found += memory.execute(query)
        except sqlite3.Error as e:
            found = [str(e)]
    wanted: list[object] = []
    with closing(sqlite3.connect(copy)) as sure:
        try:
            wanted += sure.execute(query)
        except sqlite3.Error as e:
            wanted = [str(e)]
    assert found == wanted


def _reader(path: Path, task_key: str, machine: str, rounds: int) -> None:
    seen = 0
    for _ in range(rounds):
        db = Database.reading(path)
        assert db is not None
        with db:
            found = db.ranking(task_key, machine)
        assert found.passed == ()
        assert len(found.rows) >= seen
        seen = len(found.rows)


def _writer(path: Path, rows: list[Trial]) -> None:
    for row in rows:
        with Database.open(path) as db:
            db.add(row)


def test_who_reads_sees_what_others_write(task: Task, database: Path) -> None:
    keys = program_key(task.program), target_key(task.target, 1)
    context = multiprocessing.get_context("spawn")
    rows = [[record(task, 100 * part + n, 1e-3, trace(1)) for n in range(8)] for part in (1, 2)]
    runs = [context.Process(target=_writer, args=(database, few)) for few in rows]
    runs.append(context.Process(target=_reader, args=(database, *keys, 15)))
    for process in runs:
        process.start()
    for process in runs:
        process.join(60)
        assert process.exitcode == 0
    with Database.open(database) as db:
        assert len(db.trials(*keys)) == 18
