"""A task without trials has the schedule that records of other tasks predict, with a bound that they support."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl.base.source import Source as Text
from tensorc_dsl.faces.api import kernel as kernel_module
from tensorc_dsl.faces.api.kernel import Drawn, Given, Recorded, describe, facts
from tensorc_dsl.schedule.trace.draws.choices import Branch, Categorical, Integer, Permutation
from tensorc_dsl.schedule.trace.draws.tiles import PartialTile, PerfectTile
from tensorc_dsl.schedule.trace.trace import Site
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.shipped import shipped
from tensorc_dsl.tuning.records.trial import Trial, program_key, subject, target_key
from tensorc_dsl.tuning.search.expansion import meaning_of, nearest
from tensorc_dsl.tuning.search.source import Experience, Forecast, Source, bound, guess
from tensorc_dsl.tuning.search.space import Explorer
from tests.records.test_database import TRIAL

FILE = """\
use std.ops.{matmul}

schedule tiled for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2)
    let columns ~ sample_perfect_tile(j, parts=2)
    let [i0, i1] = split(i, rows)
    let [j0, j1] = split(j, columns)
    reorder(i0, j0, k, i1, j1)
    maybe vectors { vectorize(j1) }
}
schedule plain for matmul {}

task a = matmul(M=64, N=64, K=32) with tiled
task b = matmul(M=32, N=96, K=16) with tiled
task c = matmul(M=96, N=32, K=48) with tiled
task d = matmul(M=48, N=48, K=48) with tiled
task e = matmul(M=24, N=64, K=64) with tiled
task fixed = matmul(M=24, N=64, K=64) with plain
task named = matmul(M=80, N=64, K=64) with tiled
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tensorc_dsl.TaskFile:
    path = tmp_path_factory.mktemp("zero") / "f.tsched"
    path.write_text(FILE)
    return tensorc_dsl.load(path, threads=1)


def seconds_of(decisions: Any) -> float:
    """Vectors of 16 are fast; everything else is slow."""
    columns, rows = decisions["columns"][1], decisions["rows"][1]
    return 1e-5 * (1 + abs(math.log2(columns / 16)) + abs(math.log2(rows / 4)) + 4.0 * (not decisions["vectors"]))


@cache
def trials_of(name: str, count: int) -> tuple[Trial, ...]:
    """Trials of a task of the file, timed by `seconds_of`."""
    task = tensorc_dsl.loads(FILE, threads=1)[name]
    explorer = Explorer(task.model, 7, task.name, task.target)
    drawn = [t for t in (explorer.draw() for _ in range(count)) if t is not None]
    return tuple(
        replace(
            TRIAL, task_key=program_key(task.program), target_key=target_key(task.target, 1), task=name,
            trial=n, status="ok", decisions=t.decisions, trace=t.text, program_key=program_key(t.program),
            seconds=seconds_of(t.decisions), columns=meaning_of(task.target),
            features=tuple(map(float, explorer.describe(t))),
        )
        for n, t in enumerate(drawn)
    )  # fmt: skip


def filled(path: Path, names: str, trials: int = 24) -> None:
    """A database with so many trials of each of the tasks."""
    with Database.open(path) as db:
        for name in names:
            db.add_all(trials_of(name, trials))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "r.sqlite"
    filled(path, "abcd")
    return path


@pytest.mark.corpus
def test_a_pick_is_predicted_from_other_tasks(file: tensorc_dsl.TaskFile, records: Path) -> None:
    found = file["e"].known(records)
    assert isinstance(found.origin, Forecast)
    assert (found.origin.tasks, found.origin.trials) == (4, 96)
    assert 8 <= found.origin.candidates <= 32
    assert found.origin.slower >= 1.0
    best = min(seconds_of(t.decisions) for t in (file["e"].sample(n) for n in range(64)))
    assert seconds_of(found.trace.decisions) <= found.origin.slower * best
    # It is not what was drawn before, and is the same every time.
    assert found.trace.text != file["e"].sample(0).text
    assert file["e"].known(records) == found


@pytest.mark.corpus
def test_a_pick_is_the_first_of_a_ranking_by_the_forest(file: tensorc_dsl.TaskFile, records: Path) -> None:
    task = file["e"]
    with Database.open(records) as db:
        found = guess(task.model, task.program, task.target, task.sample(0), db)
    assert found is not None
    texts = [t.text for t in found.traces]
    assert len(set(texts)) == len(texts) == found.forecast.candidates
    assert task.sample(0).text in texts
    times = [seconds_of(t.decisions) for t in found.traces]
    half = len(times) // 2
    assert np.mean(times[:half]) < np.mean(times[half:])


@pytest.mark.corpus
def test_the_best_on_another_machine_goes_before_what_is_predicted(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    task = file["e"]
    other = replace(task.target, cpu="other")
    about = subject(task.program, other, 1)
    key = target_key(other, 1)
    filled(tmp_path / "r.sqlite", "abcd")
    with Database.open(tmp_path / "r.sqlite") as db:
        there = [replace(t, target_key=key, fingerprint=about.fingerprint) for t in trials_of("e", 24)]
        db.add_all(there, [about])
        found = guess(task.model, task.program, task.target, task.sample(0), db)
    assert found is not None and (found.forecast.tasks, found.forecast.elsewhere) == (5, 24)
    assert [seconds_of(t.decisions) for t in found.traces[:4]] == sorted(t.seconds or 0.0 for t in there)[:4]


@pytest.mark.corpus
def test_own_records_go_first(file: tensorc_dsl.TaskFile, records: Path) -> None:
    found = file["a"].known(records)
    assert isinstance(found.origin, Recorded)
    recorded = file["a"].recorded(records)
    assert recorded is not None and found.trace.text == recorded.text
    assert found.origin.seconds == seconds_of(found.trace.decisions)


@pytest.mark.corpus
def test_a_renamed_task_has_the_schedule_of_its_twin(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    """What was found for the same computation under another name is found for the task."""
    filled(tmp_path / "r.sqlite", "abcde")
    twin = tmp_path / "twin.tsched"
    twin.write_text(FILE.replace("task named = matmul(M=80", "task named = matmul(M=24"))
    task = tensorc_dsl.load(twin, threads=1)["named"]
    with Database.open(tmp_path / "r.sqlite") as db:
        best = db.best(program_key(file["e"].program), target_key(task.target, 1))
    found = task.recorded(tmp_path / "r.sqlite")
    assert found is not None and best is not None
    assert found.decisions == best.decisions


@pytest.mark.corpus
@pytest.mark.parametrize(("names", "trials"), [("", 24), ("abc", 24), ("abcd", 12)])
def test_few_records_predict_nothing(file: tensorc_dsl.TaskFile, tmp_path: Path, names: str, trials: int) -> None:
    filled(tmp_path / "r.sqlite", names, trials)
    found = file["e"].known(tmp_path / "r.sqlite")
    assert found.origin == Drawn(0)
    assert found.trace.text == file["e"].sample(0).text
    with pytest.raises(tensorc_dsl.TschedError, match="E0711: there are no records in"):
        file["e"].known(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.corpus
def test_records_of_another_machine_or_of_other_numbers_predict_nothing(
    file: tensorc_dsl.TaskFile, tmp_path: Path
) -> None:
    filled(tmp_path / "r.sqlite", "abcd")
    with Database.open(tmp_path / "r.sqlite") as db:
        kept = [k.trial for k in db.all()]
    for n, change in enumerate(({"target_key": "llvm:other"}, {"columns": "others"})):
        with Database.open(tmp_path / f"{n}.sqlite") as db:
            db.add_all(replace(t, **change) for t in kept)  # type: ignore[type-var]
        assert file["e"].known(tmp_path / f"{n}.sqlite").origin == Drawn(0)


@pytest.mark.corpus
def test_records_of_the_package_teach_where_there_are_no_others(
    file: tensorc_dsl.TaskFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(kernel_module, "shipped", shipped)
    assert isinstance(file["e"].known().origin, Forecast)


@pytest.mark.corpus
def test_the_first_choice_has_the_fewest_cycles_of_the_model(
    file: tensorc_dsl.TaskFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    task = file["e"]
    chosen = task.first_choice()
    cycles = [task.modelled(t) for t in (chosen, task.sample(0))]
    assert cycles[0] is not None and cycles[1] is not None and cycles[0] <= cycles[1]
    monkeypatch.setattr(kernel_module, "first_choice", pytest.fail)  # it is kept
    assert task.first_choice().text == chosen.text
    monkeypatch.undo()
    assert file["fixed"].first_choice().text == file["fixed"].sample(0).text
    with pytest.raises(tensorc_dsl.TschedError, match="E0711"):
        task.first_choice(tmp_path / "none.sqlite")


@pytest.mark.corpus
def test_a_schedule_without_open_draws_is_taken_as_it_is(file: tensorc_dsl.TaskFile, records: Path) -> None:
    assert file["fixed"].known(records).origin == Given()


@pytest.mark.corpus
def test_rows_that_cannot_be_read_are_left_out(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    filled(tmp_path / "r.sqlite", "abcd")
    with Database.open(tmp_path / "r.sqlite") as db:
        db._connection.execute("UPDATE trials SET decisions = '{\"rows\": [0, -1], \"vectors\": 7}' WHERE task = 'a'")
        db._connection.execute("UPDATE trials SET decisions = 'none' WHERE task = 'b'")
        db._connection.execute('UPDATE trials SET decisions = \'{"rows": {"number": "x"}}\' WHERE task = \'c\'')
    assert isinstance(file["e"].known(tmp_path / "r.sqlite").origin, Forecast)


@pytest.mark.corpus
def test_a_kernel_says_where_its_schedule_is_from(file: tensorc_dsl.TaskFile, records: Path) -> None:
    with pytest.warns(UserWarning, match="W0705"):
        kernel = file["e"].best(records)
    a, b = np.ones((24, 64), np.float32), np.ones((64, 64), np.float32)
    np.testing.assert_array_equal(kernel(a, b), np.full((24, 64), 64.0))
    assert isinstance(kernel.origin, Forecast)
    assert f"; schedule predicted from 4 other tasks on this machine, probably 1.0–{kernel.origin.slower:.1f}" in repr(
        kernel
    )
    assert pickle.loads(pickle.dumps(kernel)).origin == kernel.origin
    assert file["e"].replay(kernel.trace).origin is None


def test_origins_as_words_and_as_data() -> None:
    forecast = Forecast(12, 1843, 30, 1.44)
    words = "predicted from 12 other tasks on this machine, probably 1.0–1.4 times the time of the best"
    assert describe(forecast) == words
    abroad = "predicted from 12 tasks, also on other machines, probably 1.0–1.4 times the time of the best"
    assert describe(replace(forecast, elsewhere=900)) == abroad
    assert facts(forecast) == {
        "from": "predicted", "tasks": 12, "trials": 1843, "candidates": 30, "slower": 1.44, "elsewhere": 0,
        "probability": 0.8,
    }  # fmt: skip
    assert [describe(o) for o in (Recorded(3, 1.31e-3), Drawn(7), Given())] == [
        "the fastest recorded one, 1.31 ms", "drawn with seed 7", "given",
    ]  # fmt: skip
    assert facts(Recorded(3, 1.0)) == {"from": "recorded", "row": 3, "seconds": 1.0}


# --- the bound ---------------------------------------------------------------------------------------------------------


def test_a_bound_is_the_smallest_that_its_numbers_support() -> None:
    assert [bound([1.0] * n) for n in (0, 3)] == [None, None]
    assert bound([1.0, 5.0, 2.0, 3.0]) == 5.0
    assert bound([float(n) for n in range(1, 10)]) == 8.0
    assert bound([float(n) for n in range(1, 20)]) == 16.0


def test_a_bound_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(4000):
        *known, new = np.exp(rng.exponential(0.3, 13))
        limit = bound(known)
        assert limit is not None
        held += new <= limit
    assert 0.79 <= held / 4000 <= 0.87


@pytest.mark.corpus
def test_what_is_missed_is_judged_by_forests_that_never_saw_the_task() -> None:
    """The tasks have nothing in common, so a forest that had seen one would find its best, and others do not."""

    def missed(tasks: Sequence[Experience]) -> tuple[float, ...]:
        found = Source.of(tasks, tasks[0].median)
        assert found is not None
        return found.missed

    rng = np.random.default_rng(1)
    tasks = [Experience(rng.normal(size=(60, 3)), rng.normal(size=60)) for _ in range(12)]
    assert len(missed(tasks)) == 12
    assert np.median(missed(tasks)) > 3.0
    alike = [Experience(x := rng.normal(size=(60, 3)), x[:, 0].copy()) for _ in range(12)]
    assert np.median(missed(alike)) < 3.0
    assert missed(tasks[:1]) == ()
    assert len(missed([*tasks[:6], Experience(rng.normal(size=(10, 3)), rng.normal(size=10))])) == 6


# --- schedules of other tasks ------------------------------------------------------------------------------------------


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("distribution", "wanted", "found"),
    [
        (PerfectTile(64, 2, 64), (4, 16), (4, 16)),
        (PerfectTile(96, 2, 96), (4, 16), (6, 16)),
        (PerfectTile(97, 2, 97), (4, 16), (1, 97)),
        (PerfectTile(97, 2, 97), (16, 4), (97, 1)),
        (PartialTile(1, 64, 64), (16,), (16,)),
        (PartialTile(1, 8, 8), (16,), (8,)),
        (Categorical((0, 16, 64), (1.0, 1.0, 1.0)), 64, 64),
        (Branch((1.0, 1.0), (True, False)), False, False),
        (Branch((1.0, 1.0), ("stored", "inlined")), "inlined", "inlined"),
        (Integer(1, 8), 3, 3),
        (Permutation(3), (2, 0, 1), (2, 0, 1)),
    ],
)
def test_decisions_of_another_task_are_taken_or_the_nearest_tile(distribution: Any, wanted: Any, found: Any) -> None:
    decide = nearest({"x": wanted}, np.random.default_rng(0))
    assert decide(Site("x", distribution)) == found


@pytest.mark.parametrize(
    ("distribution", "wanted"),
    [
        (PerfectTile(64, 2, 64), (4, 4, 4)),
        (PerfectTile(64, 2, 64), (0, 64)),
        (PerfectTile(64, 2, 64), (1 << 80, 3)),
        (PerfectTile(64, 2, 64), "root"),
        (Categorical((0, 16), (1.0, 1.0)), 64),
        (Categorical((0, 16), (1.0, 0.0)), 16),
        (Branch((1.0, 1.0), (True, False)), 1),
        (Permutation(3), (1, 0)),
        (Integer(1, 8), 9),
    ],
)
def test_decisions_that_mean_nothing_here_are_drawn(distribution: Any, wanted: Any) -> None:
    drawn = nearest({"x": wanted}, np.random.default_rng(0))(Site("x", distribution))
    assert drawn is not None and distribution.contains(drawn)


def test_what_is_hidden_is_drawn() -> None:
    hidden = Site("x", Categorical((0, 1), (1.0, 1e9)), hidden=True)
    assert nearest({"x": 0}, np.random.default_rng(0))(hidden) == 1


def test_a_schedule_of_another_task_gives_its_decisions_to_this_one(file: tensorc_dsl.TaskFile) -> None:
    trace = file["a"].model.expand(nearest({"rows": (16, 4), "columns": (4, 16)}, np.random.default_rng(0)))
    assert (trace.decisions["rows"], trace.decisions["columns"]) == ((16, 4), (4, 16))
    other = file["d"].model.expand(nearest({"rows": (16, 4), "columns": (4, 16)}, np.random.default_rng(0)))
    assert (other.decisions["rows"], other.decisions["columns"]) == ((12, 4), (3, 16))
    assert file["d"].expand(Text("x", other.text)).text == other.text
