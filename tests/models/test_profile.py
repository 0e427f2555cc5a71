"""Profiles of models, and their traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.api import model_timing
from tensorc_dsl.faces.api.model_timing import ModelCalls, profile_model
from tensorc_dsl.faces.api.models import LoadedModel, load_model
from tensorc_dsl.faces.cli.main import main
from tests.models.simulated import FILE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.tsched").write_text(FILE)
    monkeypatch.setattr(model_timing, "SECONDS", 0.0)


def loaded() -> LoadedModel:
    return load_model("net.tsched", threads=1)


def test_calls_compute_the_model_and_are_timed() -> None:
    model = loaded()
    inputs = model.random_inputs()
    calls = ModelCalls(model, {n: model.kernel(n) for n in model.tasks}, inputs)
    assert (calls()["y"] == model(**inputs)).all()
    assert calls.tasks == ("matmul", "relu", "matmul", "relu") and len(calls.times()) == 4
    with pytest.raises(ValueError, match="the inputs of `net`"):
        ModelCalls(model, {n: model.kernel(n) for n in model.tasks}, {"x": inputs["x"]})


def test_groups_add_up() -> None:
    found = profile_model(loaded())
    assert {g.task: g.calls for g in found.groups} == {"matmul": 2, "relu": 2}
    assert [c.task for c in found.calls] == ["matmul", "relu", "matmul", "relu"]
    assert [g.seconds for g in found.groups] == sorted((g.seconds for g in found.groups), reverse=True)
    assert sum(c.seconds for c in found.calls) == pytest.approx(found.seconds)
    product = next(g for g in found.groups if g.task == "matmul")
    assert product.roof.operations == 2 * 8**3 and product.roof.bytes_ == 3 * 4 * 64 and product.of_roof


def nests(events: list[dict[str, Any]]) -> bool:
    """Whether each event begins behind the end of the one before, or lies inside of it."""
    open_: list[float] = []
    for e in events:
        while open_ and open_[-1] <= e["ts"] + 1e-6:
            open_.pop()
        if open_ and e["ts"] + e["dur"] > open_[-1] + 1e-6:
            return False
        open_.append(e["ts"] + e["dur"])
    return True


def test_the_command_prints_groups_and_writes_a_trace() -> None:
    words = ["profile", "net.tsched", "--threads", "1", "--trace", "t.json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.stderr
    assert "group" in done.stdout and "2.05 k" in done.stdout and "matmul" in done.stdout
    trace = json.loads(Path("t.json").read_text())
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in events] == ["net", "matmul", "relu", "matmul", "relu"] and nests(events)
    assert not nests([{"ts": 0, "dur": 2}, {"ts": 1, "dur": 2}])
    told = json.loads(CliRunner().invoke(main, ["profile", "net.tsched", "net", "--threads", "1", "--json"]).stdout)
    assert [g["calls"] for g in told["groups"]] == [2, 2] and told["seconds"] > 0
    missing = CliRunner().invoke(main, [*words[:2], "--trace", "no/t.json"])
    assert missing.exit_code == 1 and "error[E0903]" in missing.stderr
    other = CliRunner().invoke(main, ["profile", "net.tsched", "nett"])
    assert other.exit_code == 1 and "has no model `nett`" in other.stderr
