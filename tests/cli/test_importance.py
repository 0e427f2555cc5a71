"""Tests of `importance`: its table, its JSON, and what it says where there is little to say."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records.database import Database
from tests.insight.known import recorded_of

FILE = """\
compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }
schedule marked for copy {
    let much ~ sample_categorical([1, 2, 3, 4])
    let none ~ sample_categorical(["a b", "c"])
    let cut ~ sample_perfect_tile(B.loops[0], parts=2)
    annotate(B, "much", much)
    annotate(B, "none", none)
    split(B.loops[0], cut)
}
task t = copy(M=64) with marked
"""


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Path("f.tsched").write_text(FILE, encoding="utf-8")
    return tensorc_dsl.load("f.tsched", threads=1)["t"]


pytestmark = pytest.mark.usefixtures("few_points_are_looked_at")

WORDS = ("importance", "f.tsched", "t", "--threads", "1", "--records", "r.sqlite")


def record(task: Task, count: int) -> None:
    """`much` decides nearly all, and the innermost part of `cut` the rest; `none` decides nothing."""

    def seconds(decisions: dict[str, object]) -> float:
        cut = decisions["cut"]
        assert isinstance(cut, tuple)
        return 1e-6 * (1.0 + 0.5 * int(str(decisions["much"])) + 0.2 * (cut[1] > 8))

    with Database.open(Path("r.sqlite")) as database:
        database.add_all(recorded_of(task, seconds, count))


@pytest.mark.corpus
def test_the_table_names_what_matters_and_what_can_be_pinned(task: Task) -> None:
    record(task, 40)
    found = call(*WORDS)
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[0].split("  ")[0] == "draw" and lines[1].startswith("much ") and lines[1].split()[-2:] == ["1", "much"]
    assert re.match(r"none +0 % +0 % +100 % ", lines[3])
    assert re.search(
        r"^a model of 40 valid trials explains \d+ % of the variance of others$", found.stdout, re.MULTILINE
    )
    assert re.search(r"^none +\"(a b|c)\" +it decides < 1 % of the variance$|^none .* 0 % ", found.stdout, re.M)
    command = lines[-1]
    assert command.startswith("tensorc-dsl tune f.tsched t --condition ")
    assert "--condition much=1" in command and ("'none=\"a b\"'" in command or "'none=\"c\"'" in command)


@pytest.mark.corpus
def test_the_command_that_it_proposes_is_one(task: Task) -> None:
    record(task, 40)
    program, tune, *words = shlex.split(call(*WORDS).stdout.splitlines()[-1])
    assert (program, tune) == ("tensorc-dsl", "tune")
    shown = call("show", *words, "--stage", "trace", "--threads", "1")
    assert shown.exit_code == 0 and "sample_categorical([1, 2, 3, 4]) := 1" in shown.stdout


@pytest.mark.corpus
def test_the_same_as_json(task: Task) -> None:
    record(task, 40)
    found = call(*WORDS, "--json")
    assert found.exit_code == 0
    facts = json.loads(found.stdout)
    assert facts["task"] == "t" and facts["valid"] == 40 and facts["left_out"] == 0 and 0.8 < facts["explained"] <= 1
    assert (facts["draws"][0]["draw"], facts["draws"][0]["best"]) == ("much", "1")
    assert {p["draw"]: p["value"] for p in facts["pins"]}["much"] == "1"
    assert call(*WORDS, "--json").stdout == found.stdout


def test_too_few_trials_are_an_error(task: Task) -> None:
    record(task, 3)
    found = call(*WORDS)
    assert found.exit_code == 1
    assert found.stderr == (
        "error[E0712]: `t` has 3 valid trials of today's space on this machine, "
        "each schedule counted once, and 8 are needed\n"
        "  = help: tune it, with more trials or another `--seed`; nothing is learnt of a space with fewer schedules\n"
    )


def test_without_records_there_is_an_error(task: Task) -> None:
    found = call(*WORDS)
    assert found.exit_code == 1 and "E0711" in found.stderr
    assert not Path("r.sqlite").exists()


def test_a_time_of_another_number_of_threads_does_not_count(task: Task) -> None:
    record(task, 40)
    found = call("importance", "f.tsched", "t", "--threads", "2", "--records", "r.sqlite")
    assert found.exit_code == 1 and "has no valid trials" in found.stderr


@pytest.mark.corpus
def test_figures_of_a_model_that_knows_nothing_are_not_relied_on(task: Task) -> None:
    """Times that have nothing to do with the draws."""
    trials = recorded_of(task, lambda _: 1e-6, 40)
    noisy = [replace(t, seconds=1e-6 * (1 + (n * 7919 % 40) / 40)) for n, t in enumerate(trials)]
    with Database.open(Path("r.sqlite")) as database:
        database.add_all(noisy)
    found = call(*WORDS)
    assert found.exit_code == 0
    assert "too little to rely on these figures" in found.stdout and "pinned" not in found.stdout


@pytest.mark.corpus
def test_an_unreadable_record_is_told(task: Task) -> None:
    record(task, 12)
    with sqlite3.connect("r.sqlite") as raw:
        raw.execute("UPDATE trials SET decisions = 'x' WHERE id = 1")
    raw.close()
    found = call(*WORDS)
    assert found.exit_code == 0 and "W0701" in found.stderr and "11 valid trials" in found.stdout
