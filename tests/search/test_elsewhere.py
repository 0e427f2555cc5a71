"""Records of other machines, of the user's and of the package: what is taken of them, and what a search tells of it."""

from __future__ import annotations

import lzma
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench.search import ship
from bench.search.tables import TABLES, read_all
from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.records.database import Asked, Database
from tensorc_dsl.tuning.records.shipped import (
    FILE,
    Shipped,
    ShippedFile,
    ShippedMachine,
    ShippedTask,
    shipped,
    written,
)
from tensorc_dsl.tuning.records.trial import Machine, Subject, Trial, program_key, subject, target_key
from tensorc_dsl.tuning.search.events import Event, Informed, Unshipped
from tensorc_dsl.tuning.search.expansion import columns_of, meaning_of
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.source import Experience, Lessons, Source, experience
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.strategy import Setting, strategy_of
from tests.search.landscape import TileSpace
from tests.search.test_tune import TARGET, TASK, FakeRunner, run

LATE = math.inf
HERE, THERE = target_key(TARGET, 2), target_key(replace(TARGET, cpu="other", l3=1 << 20), 2)
GPU = target_key(Target("cuda", "sm_90"), 1)


def trial(target: str, task: str, number: int, seconds: float, machine: str) -> Trial:
    return Trial(
        task, target, task, "bayes", 0, number, "ok", {"x": number}, "", f"{target}{number}", seconds,
        columns="c", features=(float(number),), fingerprint=machine,
    )  # fmt: skip


def facts(**some: int) -> Subject:
    found = subject(TASK, replace(TARGET, **some), 2)  # type: ignore[arg-type]
    return replace(found, task_key="")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    there, gpu = facts(l3=1 << 20), facts(cores=99)
    db = Database.open(tmp_path / "r.sqlite")
    db.add_all(
        [
            *(trial(THERE, "own", n, 2.0 + n, there.fingerprint) for n in range(6)),
            *(trial(THERE, "other", n, 3.0, there.fingerprint) for n in range(2)),
            trial(HERE, "own", 7, 1.0, facts().fingerprint),
            trial(HERE, "other", 8, 1.0, facts().fingerprint),
            trial(GPU, "own", 9, 1.0, gpu.fingerprint),
            trial(THERE, "nowhere", 10, 1.0, "a machine that is not described"),
        ],
        [there, gpu, facts()],
    )
    return db


def test_other_tasks_here_come_first_then_all_tasks_on_other_machines_of_the_kind(database: Database) -> None:
    with database:
        found = list(database.others(Asked("own", "own"), HERE, "c", LATE))
    assert [(m.task_key, m.features[0], m.machine is None) for m in found] == [
        ("other", 8.0, True),
        *(("other", float(n), False) for n in (1, 0)),
        *(("own", float(n), False) for n in (5, 4, 3, 2, 1, 0)),
    ]
    (place,) = {m.machine for m in found if m.machine is not None}
    assert place.target_key == THERE
    assert dict(place.numbers)["l3"] == pytest.approx(20.0, abs=1e-3) and "kind" not in dict(place.numbers)


def test_schedules_of_the_task_on_other_machines_and_of_other_tasks(database: Database) -> None:
    with database:
        itself = [d["x"] for d in database.decisions_elsewhere("own", HERE, LATE)]
        others = [d["x"] for d in database.best_decisions(Asked("own", "own"), HERE, LATE)]
    assert itself == [0, 1, 2, 3]  # the four fastest there
    assert others == [8, 10, 0]  # here first


def test_schedules_for_other_numbers_of_threads_are_no_first_trials(database: Database) -> None:
    more = target_key(TARGET, 16)
    with database:
        assert database.decisions_elsewhere("own", more, LATE) == []
        assert {d["x"] for d in database.best_decisions(Asked("own", "own"), more, LATE)[:2]} == {7, 0}
    package = Shipped(table(THERE, ["own", "other"]))
    assert package.decisions_elsewhere("own", more, LATE) == []
    assert len(package.best_decisions(Asked("own", "own"), more, LATE)) == 2


def test_a_search_learns_from_another_machines_file_and_tells_so(tmp_path: Path) -> None:
    elsewhere = replace(TARGET, cpu="other", l3=1 << 20)
    with Database.open(tmp_path / "r.sqlite") as db:
        run(FakeRunner(), db, trials=12, target=elsewhere)
        _, events = run(FakeRunner(), db, trials=12, strategy="bayes")
    assert [e for e in events if isinstance(e, Informed)] == [Informed(12, 1, 12, 1)]


def test_the_first_trials_are_the_best_schedules_of_the_task_on_other_machines() -> None:
    explorer = Explorer(TileSpace(), 1, "task", Target())
    known = [t.decisions for t in explorer.draws(6)]
    asked = strategy_of("bayes")(Setting(Explorer(TileSpace(), 0, "task", Target()), 64, itself=lambda: known))
    assert [dict(t.decisions) for t in asked.propose(8, 1.0)[:2]] == [dict(d) for d in known[:2]]


# --- the model -------------------------------------------------------------------------------------------------------


def place(l3: float) -> Machine:
    return Machine("m", (("l3", l3), ("same", 3.0)))


def on(machine: Machine | None, sign: float, seed: int, count: int = 200) -> Experience:
    x = np.random.default_rng(seed).normal(size=(count, 4))
    return Experience(x, sign * x[:, 0] + 0.1 * x[:, 1], f"t{seed}", machine)


def rank(source: Source | None, of: Experience) -> float:
    assert source is not None
    return float(np.corrcoef(source.predict(of.features), of.speeds)[0, 1])


def test_constants_that_differ_are_columns_and_tell_machines_apart() -> None:
    """Elsewhere the first number has the opposite effect: rows of this machine are told from those by its constants."""
    here, there = place(28.0), place(27.0)
    tasks = [on(there, -1.0, n) for n in range(6)] + [on(None, 1.0, n) for n in range(6, 9)]
    new = on(None, 1.0, 20)
    source = Source.of(tasks, new.median, here)
    assert source is not None and source.names == ("l3",)
    assert rank(source, new) > 0.7
    assert rank(source.at(on(there, -1.0, 21)), on(there, -1.0, 21)) > 0.7


def test_with_one_machine_there_are_no_such_columns() -> None:
    new = on(None, 1.0, 20)
    known, blind = (Source.of([on(None, 1.0, n) for n in range(3)], new.median, m) for m in (place(28.0), None))
    assert known is not None and blind is not None and known.names == ()
    assert np.array_equal(known.predict(new.features), blind.predict(new.features))


def test_a_number_that_one_machine_does_not_state_tells_nothing() -> None:
    new = on(None, 1.0, 20)
    source = Source.of([on(Machine("m", (("same", 3.0),)), 1.0, 1)], new.median, place(28.0))
    assert source is not None and source.names == () and rank(source, new) > 0.7


def test_rows_of_this_machine_are_taken_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorc_dsl.tuning.search.source.ROWS", 200)
    new = on(None, 1.0, 20)
    source = Source.of([on(None, 1.0, 1), *(on(place(26.0), -1.0, n) for n in range(2, 12))], new.median, place(28.0))
    assert rank(source, new) > 0.7


# --- the file of the package -----------------------------------------------------------------------------------------


def table(target: str, tasks: Sequence[str], columns: str = "c") -> ShippedFile:
    rows: Array = np.arange(20.0)
    of = [
        ShippedTask(
            t, [1.0 + n for n in range(20)], [rows.tolist(), (rows + 1).tolist()], [msgspec.Raw(b'{"x":[4,2]}')]
        )
        for t in tasks
    ]
    return ShippedFile(columns, [ShippedMachine(target, {"l3": 7, "kind": "llvm"}, of)])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "s.xz"
    path.write_bytes(written(table(THERE, ["own", "other"])))
    there = shipped("c", path)
    assert isinstance(there, Shipped)
    found = list(there.others(Asked("own", "own"), HERE, "c", LATE))
    assert len(found) == 40 and {m.task_key for m in found} == {"own", "other"}
    assert found[0].features == (19.0, 20.0) and found[0].seconds == 20.0
    assert found[0].machine == Machine(THERE, (("l3", 3.0),))
    assert (
        there.best_decisions(Asked("own", "own"), HERE, LATE)
        == [{"x": (4, 2)}]
        == there.decisions_elsewhere("own", HERE, LATE)
    )
    assert (
        list(there.others(Asked("own", "own"), GPU, "c", LATE))
        == []
        == there.best_decisions(Asked("own", "own"), GPU, LATE)
    )
    assert list(there.others(Asked("own", "own"), HERE, "d", LATE)) == []
    assert all(m.machine is None for m in there.others(Asked("own", "own"), THERE, "c", LATE))


def test_a_damaged_file_is_told_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s.xz"
    whole = written(table(THERE, ["own"]))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    short = table(THERE, ["own"])
    short.machines[0].tasks[0].features[1].pop()
    unmeasured = table(THERE, ["own"])
    unmeasured.machines[0].tasks[0].seconds[3] = 0.0
    unread = table(THERE, ["own"])
    unread.machines[0].tasks[0].best[0] = msgspec.Raw(b'{"x":{}}')
    for content in (
        b"", b"no archive", whole[:-9], bytes(flipped), lzma.compress(b"{"), lzma.compress(b'{"columns": 3}'),
        written(short), written(unmeasured), written(unread), written(table(THERE, ["own"], columns="older")),
    ):  # fmt: skip
        path.write_bytes(content)
        found = shipped("c", path)
        assert isinstance(found, Diagnostic) and found.code == "W0707"
    assert isinstance(shipped("c", tmp_path / "missing"), Diagnostic)


def test_a_search_without_them_tells_once_and_goes_on(tmp_path: Path) -> None:
    asked: list[Diagnostic] = []

    def missing() -> Shipped | Diagnostic:
        found = shipped("c", tmp_path / "missing")
        assert isinstance(found, Diagnostic)
        asked.append(found)
        return found

    result, events = run(FakeRunner(), trials=12, strategy="bayes", package=missing)
    assert result.trials == 12
    assert [e.why for e in events if isinstance(e, Unshipped)] == asked and len(asked) == 1


def test_a_search_learns_from_them_and_tells_so() -> None:
    def heard(target: str) -> list[Event]:
        content = table(target, [program_key(TASK), "other"], meaning_of(Target()))
        for task in content.machines[0].tasks:
            task.features = [task.features[0]] * len(columns_of(Target()))
        _, events = run(FakeRunner(), trials=12, strategy="bayes", package=lambda: Shipped(content))
        return [e for e in events if isinstance(e, Informed)]

    assert heard(THERE) == [Informed(40, 2, 40, 1)]
    assert heard(HERE) == [Informed(40, 2, 0, 0)]
    assert heard(GPU) == []


def test_the_file_of_the_package_is_of_this_version_and_teaches() -> None:
    """Where it fails: `python -m bench.search.ship`."""
    there = shipped(meaning_of(Target()))
    assert isinstance(there, Shipped)
    assert FILE.stat().st_size < 500_000
    tasks = experience(there.others(Asked("new", "t"), target_key(Target(), 1), meaning_of(Target()), LATE))
    assert len(tasks) >= 16 and all(len(t.speeds) >= 80 for t in tasks)
    assert {t.task for t in tasks} == {program_key(t.program) for t in load(ship.WORKLOADS, threads=1).values()}
    assert all(t.machine is not None and dict(t.machine.numbers)["vector_bits"] > 7 for t in tasks)
    one = tasks[0]
    assert one.features.shape[1] == len(columns_of(Target()))
    tables = [t for folder in TABLES.iterdir() for t in read_all(folder).values()]
    speeds = [-np.log([s for s in t.seconds if s]) for t in tables]
    same = next(
        t for t, s in zip(tables, speeds, strict=True) if len(s) == len(one.speeds) and np.allclose(s, one.speeds)
    )
    assert np.abs(same.features - one.features).max() <= 0.5 * 10**-ship.DIGITS + 1e-9


def test_lessons_of_several_teachers_are_taken_together(database: Database) -> None:
    key = program_key(TASK)
    package = Shipped(table(THERE, [key, "other"], meaning_of(Target())))
    with database:
        lessons = Lessons.of(TASK, TARGET, 2, (None, database, package))
        assert lessons.task.key == key and lessons.target_key == HERE
        assert sorted(t.task for t in lessons.tasks()) == sorted([key, "other"])
        assert lessons.bests()[-1:] == [{"x": (4, 2)}] == lessons.itself()
