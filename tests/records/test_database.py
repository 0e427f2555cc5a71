"""The database of trials: rows come back for their own task and target only, and invalid files are not changed."""

from __future__ import annotations

import math
import multiprocessing
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.records.database import Database, default_path
from tensorc_dsl.tuning.records.errors import APPLICATION_ID
from tensorc_dsl.tuning.records.schema import SCHEMA_VERSION
from tensorc_dsl.tuning.records.trial import Trial, decode_decisions, encode_decisions, program_key, target_key
from tests.programs import matmul

TRIAL = Trial(
    task_key="t1", target_key="m1", task="mm", strategy="random", seed=3, trial=0, status="ok",
    decisions={"tile": (4, 8, 16), "unroll": 64, "fast": True, "layout": "nhwc", "p": 0.5},
    trace="schedule a for b {}\n", program_key="p1", seconds=1.5e-3, times=(1.5e-3, 1.6e-3), max_error=1e-6,
    build_seconds=0.1, run_seconds=0.2,
)  # fmt: skip


def code_of(caught: pytest.ExceptionInfo[TschedError]) -> str:
    return caught.value.diagnostics[0].code


def test_a_trial_comes_back_as_it_was(tmp_path: Path) -> None:
    failed = replace(TRIAL, trial=1, status="crash", seconds=None, times=(), message="SIGSEGV", max_error=None)
    with Database.open(tmp_path / "deep" / "r.sqlite") as db:
        db.add(TRIAL)
        db.add(failed)
        got = db.trials("t1", "m1")
    assert got == (TRIAL, failed)
    assert got[0].created > 1e9
    assert got[0].version
    with Database.open(tmp_path / "deep" / "r.sqlite") as db:
        assert db.trials("t1", "m1") == (TRIAL, failed)
        assert db.tasks() == (("mm", "t1", "m1", 2),)


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1, -(2**63), 2**63, 2**256 - 1, -(2**255), 0, -0.0, 0.0, 5e-324, 0.1, sys.float_info.max, math.inf, -math.inf,
        True, False, "inf", "number", "", 'a"\\\n\0', (), (2**63 - 1,),
    ],
)  # fmt: skip
def test_every_value_of_a_decision_is_read_as_it_was(value: Decision) -> None:
    assert repr(decode_decisions(encode_decisions({"x": value}))) == repr({"x": value})


def test_decisions_keep_their_types() -> None:
    back = decode_decisions(encode_decisions(TRIAL.decisions))
    assert back == dict(TRIAL.decisions)
    assert [type(v) for v in back.values()] == [tuple, int, bool, str, float]


def test_a_record_serves_its_own_task_and_target_only(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        db.add(replace(TRIAL, target_key="m2", seconds=1e-9))
        db.add(replace(TRIAL, task_key="t2", seconds=1e-9))
        assert db.trials("t1", "m1") == ()
        assert db.best("t1", "m1") is None
        db.add(TRIAL)
        best = db.best("t1", "m1")
        assert best is not None and best.seconds == TRIAL.seconds


def test_a_final_time_speaks_for_its_program(tmp_path: Path) -> None:
    lucky = replace(TRIAL, program_key="lucky", seconds=1.0, times=(1.0,))
    steady = replace(TRIAL, program_key="steady", seconds=1.1, times=(1.1,))
    with Database.open(tmp_path / "r.sqlite") as db:
        db.add_all([lucky, steady])
        assert db.best("t1", "m1") == lucky
        db.add_all([replace(lucky, phase="final", seconds=1.3), replace(steady, phase="final", seconds=1.12)])
        best = db.best("t1", "m1")
        assert best is not None and (best.program_key, best.seconds) == ("steady", 1.12)
        db.add(replace(steady, phase="final", status="wrong_result", seconds=None, times=()))
        best = db.best("t1", "m1")
        assert best is not None and best.program_key == "lucky"


def test_a_first_look_does_not_beat_finalists_that_were_as_fast_then(tmp_path: Path) -> None:
    """The machine was slower at the end: all finalists take longer there, and the others were not measured again."""
    first, second, third = (
        replace(TRIAL, program_key=key, seconds=s, times=(s,)) for key, s in (("1", 1.0), ("2", 1.01), ("3", 1.04))
    )
    finals = [replace(first, phase="final", seconds=1.1), replace(second, phase="final", seconds=1.06)]
    with Database.open(tmp_path / "r.sqlite") as db:
        db.add_all([first, second, third, *finals])
        best = db.best("t1", "m1")
        assert best is not None and best.program_key == "2"
        db.add(replace(TRIAL, program_key="much faster", seconds=0.9, times=(0.9,)))
        best = db.best("t1", "m1")
        assert best is not None and best.program_key == "much faster"


def test_programs_that_were_compared_in_a_model_have_their_order_there(tmp_path: Path) -> None:
    alone = {"a": 1.0, "b": 1.1, "c": 1.3, "d": 1.2}
    rows = [replace(TRIAL, program_key=key, seconds=s, times=(s,)) for key, s in alone.items()]

    def compared(run: str, **seconds: float) -> list[Trial]:
        some = {key: replace(TRIAL, program_key=key, phase="context", run=run) for key in seconds}
        return [replace(some[key], seconds=s, times=(s,)) for key, s in seconds.items()]

    with Database.open(tmp_path / "r.sqlite") as db:
        db.add_all(rows)

        def order() -> str:
            ranked = db.ranking("t1", "m1").rows
            return "".join(db.trial(row).program_key for row in ranked)

        assert order() == "abdc"
        db.add_all(compared("1", a=5.0, b=4.0, c=3.0))
        assert order() == "cbda"  # c has the time of a, and a that of c
        best = db.best("t1", "m1")
        assert best is not None and (best.seconds, best.phase) == (1.3, TRIAL.phase)
        db.add_all(compared("2", a=7.0, b=8.0))
        assert order() == "abdc"  # the last comparison counts
        db.add(replace(TRIAL, program_key="e", seconds=0.9, times=(0.9,)))
        assert order() == "eabdc"  # one that is faster alone than all of these was not compared yet
        db.add_all(compared("3", f=2.0, a=3.0))
        assert order() == "efabdc"  # f was never timed alone
        db.add(replace(TRIAL, program_key="g", seconds=1.0, times=(1.0,)))
        assert order() == "efagbdc"  # g is as fast alone as a, and was not compared
        db.add(replace(TRIAL, program_key="f", phase="final", status="crash", seconds=None, times=()))
        assert order() == "eagbdc"


def test_a_batch_is_recorded_whole_or_not_at_all(tmp_path: Path) -> None:
    broken = replace(TRIAL, seconds=None)  # "ok" without a time
    with Database.open(tmp_path / "r.sqlite") as db:
        with pytest.raises(sqlite3.IntegrityError):
            db.add_all([TRIAL, broken])
        assert db.trials("t1", "m1") == ()
        db.add(TRIAL)
        assert len(db.trials("t1", "m1")) == 1


def _writer(path: Path, seed: int, count: int) -> None:
    with Database.open(path) as db:
        for n in range(count):
            db.add(replace(TRIAL, seed=seed, trial=n))


def test_two_runs_at_once_both_record(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=_writer, args=(path, seed, 25)) for seed in (1, 2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
        assert run.exitcode == 0
    with Database.open(path) as db:
        got = [(t.seed, t.trial) for t in db.trials("t1", "m1")]
    assert sorted(got) == [(seed, n) for seed in (1, 2) for n in range(25)]


def test_a_newer_format_is_an_error_and_the_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Database.open(path) as db:
        db.add(TRIAL)
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    raw.close()
    with pytest.raises(TschedError) as caught:
        Database.open(path)
    assert code_of(caught) == "E0701"
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM trials").fetchone() == (1,)
    assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    raw.close()


@pytest.mark.parametrize("content", [b"hello, I am a text file\n" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(TschedError) as caught:
        Database.open(path)
    assert code_of(caught) == "E0702"
    assert path.read_bytes() == content


def test_anothers_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.sqlite"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE photos (id)")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(TschedError) as caught:
        Database.open(path)
    assert code_of(caught) == "E0702"
    assert path.read_bytes() == before


def test_a_damaged_row_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Database.open(path) as db:
        db.add(TRIAL)
        raw = sqlite3.connect(path)
        raw.execute("UPDATE trials SET decisions = '{\"tile\": nul'")
        raw.commit()
        raw.close()
        with pytest.raises(TschedError) as caught:
            db.trials("t1", "m1")
    assert code_of(caught) == "E0715"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "r.sqlite", tmp_path):
        with pytest.raises(TschedError) as caught:
            Database.open(path)
        assert code_of(caught) == "E0703"


def test_a_full_disk_keeps_what_was_recorded(tmp_path: Path) -> None:
    with Database.open(tmp_path / "r.sqlite") as db:
        db.add(TRIAL)
        (pages,) = db._connection.execute("PRAGMA page_count").fetchone()
        db._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(TschedError) as caught:
            db.add_all([replace(TRIAL, trace="x" * 4000)] * 100)
        assert code_of(caught) == "E0704"
        assert db.trials("t1", "m1")[0] == TRIAL
        db._connection.execute("PRAGMA max_page_count = 100000")
        kept = len(db.trials("t1", "m1"))
        db.add(TRIAL)
        assert len(db.trials("t1", "m1")) == kept + 1


def test_a_lock_held_too_long_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Database.open(path) as db, Database.open(path, wait=0.05) as other:
        with db._lock, pytest.raises(TschedError) as caught:
            other.add(TRIAL)
        assert code_of(caught) == "E0705"
        other.add(TRIAL)


def test_the_default_place_is_the_users() -> None:
    assert default_path().name == "records.sqlite"
    assert default_path().is_absolute()


def test_keys_tell_programs_and_targets_apart() -> None:
    a, b = Program("f", (), (), ()), matmul(4, 4, 4)
    assert program_key(a) == program_key(Program("f", (), (), ())) != program_key(b)
    zen = Target(cpu="znver4", features="+avx2", vector_bits=512, cores=8)
    others = [replace(zen, cpu="znver5"), replace(zen, features="+avx2,-fma"), replace(zen, vector_bits=256)]
    keys = {target_key(t, 2) for t in [zen, *others]} | {target_key(zen, 4)}
    assert len(keys) == 5
    assert target_key(zen, 2) == target_key(replace(zen), 2)
