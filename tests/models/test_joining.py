"""The draws of a model's graph rules are decided by its tuning: which ways are tried, which is taken, and who takes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.faces.api import model_tuning, searching
from tensorc_dsl.faces.api.model_groupings import fastest_way, promising
from tensorc_dsl.faces.api.model_timing import ModelCalls
from tensorc_dsl.faces.api.model_tuning import ModelTuning, tune_model
from tensorc_dsl.faces.api.models import LoadedModel, load_model
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.faces.cli import measured
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.graph.grouping import alternatives, decided, deciding
from tensorc_dsl.tuning.measure.in_context import InContext, Lineup
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key
from tests.models.simulated import Simulated

FILE = """\
use std.ops.{matmul}

compute relu(X: f32[M, N]) -> Y: f32[M, N] {
    Y[i, j] = max(X[i, j], 0.0)
}

module numbered(b: Block) {
    let number ~ sample_int(0..1000000)
    annotate(b, "number", number)
}

space numbers for llvm {
    numbered
}

module joins(c: Node)
when c.calls == ["relu"]
{
    for p in c.producers {
        maybe(30) joined { try { join_nodes(p, c) } }
    }
}

space own for graph {
    joins
}

model net(x: f32[8, 8], w: f32[8, 8]) -> y: f32[8, 8] {
    let a = matmul(x, w)
    let b = relu(a)
    let c = matmul(b, w)
    y = relu(c)
}
"""
RECORDS = Path("r.sqlite")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches and comparisons are simulated."""
    monkeypatch.chdir(tmp_path)
    Path("net.tsched").write_text(FILE)
    monkeypatch.setattr(searching, "LocalRunner", Simulated)
    monkeypatch.setattr(Simulated, "timed", [])
    monkeypatch.setattr(model_tuning, "flusher", lambda _: lambda: None)
    monkeypatch.setattr(model_tuning, "NEGLIGIBLE", 0.0)
    monkeypatch.setattr(measured, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(Task, "first_choice", lambda task, _records: task.sample(0))
    monkeypatch.setattr(Task, "modelled", lambda *_: 1.0)
    monkeypatch.setattr(model_tuning._Calm, "slower", lambda _: 1.0)  # pyright: ignore[reportPrivateUsage]
    in_the_model(monkeypatch)


def in_the_model(monkeypatch: pytest.MonkeyPatch, joined: float = 1.0, *, trusted: bool = True) -> None:
    """Each call takes a microsecond in the model, of two that are joined `joined` ones, with its last choice; others ten."""

    def each(task: str) -> float:
        return 1e-6 * (joined if task.startswith("matmul_relu") else 1.0)

    def compare(runs: Sequence[Lineup], *_: Any, **__: Any) -> InContext:
        counts: dict[str, int] = {}
        for run in runs:
            for task in run.tasks:
                counts[task] = max(counts.get(task, 1), 1 + run.choices[task])
        times = {t: (*((10 * each(t),) for _ in range(n - 1)), (each(t),)) for t, n in counts.items()}
        return InContext(times, 4, trusted)

    def turns(runs: Sequence[ModelCalls], _seconds: float) -> list[tuple[float, ...]]:
        return [(sum(map(each, run.tasks)),) * 4 for run in runs]

    monkeypatch.setattr(model_tuning, "compare_in_context", compare)
    monkeypatch.setattr(model_tuning, "by_turns", turns)


def loaded(**options: Any) -> LoadedModel:
    return load_model("net.tsched", threads=1, records=RECORDS, **options)


def tuned(model: LoadedModel | None = None, **options: Any) -> ModelTuning:
    return tune_model(model or loaded(), trials=8, strategy="random", **options)


def rows() -> list[Trial]:
    """The records of ways."""
    with Database.open(RECORDS) as db:
        found = [k.trial for k in db.all()]
    return [t for t in found if isinstance(t, Trial) and t.task == "net"]


def test_the_same_draw_of_equal_calls_is_one_alternative() -> None:
    model = loaded()
    assert model.trace is not None
    (one,) = alternatives(model.plan, model.trace)
    assert (one.draw, one.value) == ("joins.joined", True)
    assert one.wanted == {"joins.joined of b": True, "joins.joined of y": True}
    other = model.regrouped(deciding({**decided(model.trace), **one.wanted}))
    assert list(other.tasks) == ["matmul_relu"] and other.trace is not None
    # The first one reads an input now, and the second one the first.
    back = alternatives(other.plan, other.trace)
    assert [(a.value, list(a.wanted)) for a in back] == [(False, ["joins.joined of b"]), (False, ["joins.joined of y"])]


def test_a_draw_that_was_given_has_no_alternative() -> None:
    model = loaded(decisions={"joined": False})
    assert model.trace is not None
    (one,) = alternatives(model.plan, model.trace)
    assert one.wanted == {"joins.joined of y": True}
    other = model.regrouped(deciding(one.wanted))
    assert list(other.tasks) == ["matmul", "relu", "matmul_relu"]


def test_what_may_be_faster_is_promising() -> None:
    model = loaded()
    seconds = {"matmul": 9e-6, "relu": 1e-6}

    def found(new: float | None, recorded: float | None = None) -> int:
        def time(of: float | None) -> Any:
            return lambda task: of if task.name == "matmul_relu" else 1.0

        return len(promising(model, seconds, time(recorded), time(new)))

    assert found(0.5) == found(2.4) == found(None) == found(9.0, recorded=1.0) == 1
    assert found(2.6) == found(float("inf")) == found(0.5, recorded=3.0) == 0


def test_another_way_is_taken_if_it_is_surely_faster() -> None:
    one = (1.0, 1.0, 1.0, 1.0)
    assert fastest_way([one]) == fastest_way([one, (0.995, 0.995, 0.995, 0.995)]) == 0
    assert fastest_way([one, (0.9, 0.9, 1.1, 1.1)]) == 0
    assert fastest_way([one, (0.9, 0.9, 0.9, 1.1), (0.8, 0.8, 0.8, 0.8)]) == 2


@pytest.mark.corpus
def test_the_way_that_is_faster_is_taken_and_recorded() -> None:
    model = loaded()
    inputs = model.random_inputs()
    found = tuned(model)
    (way,) = found.ways
    assert way.taken and way.draws == ("joins.joined = true in 2 places",)
    assert found.as_joined == pytest.approx(4e-6) and found.after == way.seconds == pytest.approx(2e-6)
    assert [(t.task, t.calls, t.before) for t in found.tasks] == [("matmul_relu", 2, None)]
    assert found.trials == 8 and len(Simulated.timed) == 8
    assert [t.decisions for t in rows()] == [{"joined": False, "joined_1": False}, {"joined": True, "joined_1": True}]
    for same in (model, loaded()):
        assert (
            list(same.tasks) == ["matmul_relu"]
            and same.kernel("matmul_relu").trace.text == found.tasks[0].schedule.text
        )
    x, w = inputs["x"], inputs["w"]
    np.testing.assert_allclose(model(**inputs), np.maximum(np.maximum(x @ w, 0) @ w, 0), rtol=1e-4, atol=1e-5)
    # What is given goes before records.
    assert len(loaded(decisions={"joined": False}).tasks) == 2
    # It is what the next tuning begins with, and the other way round is an alternative.
    again = tuned()
    assert not any(w.taken for w in again.ways) and list(loaded().tasks) == ["matmul_relu"]


@pytest.mark.corpus
def test_the_way_that_the_model_has_stays_if_it_is_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_model(monkeypatch, 1.995)
    found = tuned()
    (way,) = found.ways
    assert (
        not way.taken and way.seconds == pytest.approx(3.99e-6) and {t.task for t in found.tasks} == {"matmul", "relu"}
    )
    assert [t.decisions["joined"] for t in rows()] == [False] and len(loaded().tasks) == 2
    in_the_model(monkeypatch, 5.0)
    assert tuned().ways[0].seconds is None


@pytest.mark.corpus
def test_while_a_disturbance_lasts_the_calls_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_model(monkeypatch, trusted=False)
    found = tuned()
    assert not found.trusted and not found.ways[0].taken and rows() == [] and len(loaded().tasks) == 2


@pytest.mark.corpus
def test_draws_are_fixed_by_names_of_tasks_and_by_conditions() -> None:
    assert tuned(tasks=["matmul", "relu"]).ways == ()
    assert tuned(loaded(decisions={"joined": True, "joined_1": True})).ways == ()


@pytest.mark.corpus
def test_records_of_other_rules_do_not_count() -> None:
    tuned()
    Path("net.tsched").write_text(FILE.replace("maybe(30)", "maybe(31)"))
    assert len(loaded().tasks) == 2
    Path("net.tsched").write_text(FILE.replace("maybe(30)", "maybe (30)"))
    assert len(loaded().tasks) == 1
    # Names do not matter.
    Path("net.tsched").write_text(FILE.replace("let b = relu(a)", "let q = relu(a)").replace("matmul(b,", "matmul(q,"))
    assert len(loaded().tasks) == 1


def call(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--threads", "1", "--records", "r.sqlite"])


TUNE = ("tune", "net.tsched", "--strategy", "random", "--trials", "8")


@pytest.mark.corpus
def test_the_command_tells_of_it_and_its_file_has_it() -> None:
    done = call(*TUNE)
    assert done.exit_code == 0, done.stderr
    told = "joins.joined = true in 2 places: taken, 2.00 µs a call, and 4.00 µs as calls were joined before"
    assert told in done.stdout and "looking for other ways to join the calls" in done.stderr
    text = Path("net.best.tsched").read_text()
    for part in ("schedule net for net {", "join_nodes(a, b)", "schedule matmul_relu for matmul_relu {"):
        assert part in text
    ran, profiled = call("run", "net.tsched"), call("profile", "net.tsched", "--json")
    assert ran.exit_code == profiled.exit_code == 0, ran.stderr + profiled.stderr
    assert [g["task"] for g in json.loads(profiled.stdout)["groups"]] == ["matmul_relu"]
    replayed = CliRunner().invoke(main, ["replay", "net.tsched", "net.best.tsched", "--threads", "1"])
    assert replayed.exit_code == 0 and "net: " in replayed.stdout, replayed.stderr
    model = load_model("net.tsched", threads=1, schedules="net.best.tsched", records="none.sqlite")
    same, recorded = ({n: program_key(t.program) for n, t in m.schedules().items()} for m in (model, loaded()))
    assert same == recorded
    facts = json.loads(call(*TUNE, "--resume", "--json").stdout)
    assert [t["task"] for t in facts["tasks"]] == ["matmul_relu"]


@pytest.mark.corpus
def test_a_condition_pins_a_draw() -> None:
    facts = json.loads(call(*TUNE, "--condition", "joined=false", "--json").stdout)
    assert facts["joined_otherwise"][0]["draws"] == ["joins.joined = true"]
    wrong = call(*TUNE, "--condition", "joind=false")
    assert wrong.exit_code == 1 and "E0556" in wrong.stderr
    made = call("compile", "net.tsched", "--condition", "joined=true", "--emit", "header")
    assert made.exit_code == 0, made.stderr


@pytest.mark.corpus
def test_a_file_of_schedules_without_one_for_the_model_joins_by_the_likeliest_draws() -> None:
    tuned()
    drawn = load_model("net.tsched", threads=1, records="no.sqlite").tasks["relu"].sample(0)
    Path("old.tsched").write_text(replace(drawn, name="relu").titled)
    model = load_model("net.tsched", threads=1, records=RECORDS, schedules="old.tsched")
    assert list(model.tasks) == ["matmul", "relu"]
