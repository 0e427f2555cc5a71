"""Models whose tasks are tuned on workers: real ones of this machine, and stand-ins of another kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import connect, load_model, model_tuning, models, tune_model
from tensorc_dsl.faces.api.model_tuning import TuningDisplay
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.cluster import pool
from tensorc_dsl.tuning.records.database import Queue
from tests.cluster.stub import TARGET, Stub
from tests.models.simulated import FILE

RECORDS = Path("r.sqlite")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("net.tsched").write_text(FILE, encoding="utf-8")


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Target:
    """The target of stand-ins, which is not that of this machine."""

    def stub(_target: Target, token: bytes, machine: str) -> Stub:
        return Stub(0, target=other, token=token)

    other = replace(TARGET, cpu="x86-64-v3", cores=1)  # no machine calls itself so, and each with AVX2 can run its code
    monkeypatch.setattr(pool, "Station", stub)
    return other


def tuned(*words: str) -> Result:
    more = ("--trials", "8", "--strategy", "random", "--records", str(RECORDS))
    return CliRunner().invoke(main, ("tune", "net.tsched", *words, *more))


def test_workers_of_this_target_time_tasks_and_this_machine_the_model() -> None:
    with connect("local:1", threads=1) as workers, Queue.at(RECORDS) as queue:
        model = load_model("net.tsched", threads=1, records=RECORDS)
        found = tune_model(model, trials=8, strategy="random", records=queue, on=workers)
    assert found.timed_whole and found.before and found.after and found.trials == 8
    assert {o.machine for t in found.tasks for o in t.result.outcomes} != {""}
    assert all(t.after for t in found.tasks)


def test_workers_of_another_target_time_tasks_alone(others: Target) -> None:
    found = tuned("--on", "local:1", "--json")
    assert found.exit_code == 0, found.stderr
    facts = json.loads(found.stdout)
    assert (facts["timed_whole"], facts["seconds"], facts["trials"]) == (False, None, 8)
    assert {t["task"]: t["alone_seconds"] is not None for t in facts["tasks"]} == {"matmul": True, "relu": True}
    text = Path("net.best.tsched").read_text("utf-8")
    assert f"// on {others.cpu}, 1 thread" in text and text.count("schedule ") == 2
    model = load_model("net.tsched", records=RECORDS, native=others)
    for name, task in model.tasks.items():
        recorded = task.recorded(RECORDS)
        assert recorded is not None and f"schedule {name} for" in text and recorded.decisions
    again = tuned("--on", "local:1", "--resume")
    assert again.exit_code == 0, again.stderr
    assert "no run of the model was timed" in again.stdout


def test_a_machine_of_that_target_does_the_rest_with_the_records(
    others: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuned("--on", "local:1").exit_code == 0
    for module in (models, model_tuning):
        monkeypatch.setattr(module, "host_target", lambda _threads: others)
    with Queue.at(RECORDS) as queue:
        model = load_model("net.tsched", records=RECORDS)
        found = tune_model(model, trials=8, strategy="random", resume=True, records=queue)
    assert found.timed_whole and found.before and found.after and found.trials == 8
    outcomes = [o for t in found.tasks for o in t.result.outcomes]
    assert all(
        o.times == (o.seconds,) * 8 for o in outcomes
    )  # none was measured again: these are the stand-ins' answers


def test_a_model_for_a_target_that_nobody_serves(others: Target) -> None:
    with connect("local:1") as workers, Queue.at(RECORDS) as queue:
        model = load_model("net.tsched", records=RECORDS, native=replace(others, cores=2))
        with pytest.raises(TschedError, match=r"E0876.*it is for `llvm:.*:2`"):
            tune_model(model, trials=8, records=queue, on=workers, display=TuningDisplay())


def test_a_model_is_not_tuned_on_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorc_dsl.tuning.cluster.ssh import Board

    monkeypatch.setattr(Board, "open", lambda _: None)
    found = tuned("--on", "ssh://board")
    assert found.exit_code == 2 and "a model is not tuned on a board" in found.stderr
