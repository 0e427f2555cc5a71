"""Tests of `db`: listing, showing, copying, pruning and verifying records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records.database import Asked, Database
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key

FILE = """\
compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }
schedule marked for copy { let mark ~ sample_categorical([1, 2, 3]); annotate(B, "mark", mark) }
task t = copy(M=64) with marked
"""


def call(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, list(words), input=text)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Path("f.tsched").write_text(FILE, encoding="utf-8")
    return tensorc_dsl.load("f.tsched", threads=1)["t"]


def trial(task: Task, mark: int, seconds: float) -> Trial:
    trace = task.over(_written(mark)).sample(0)
    keys = program_key(task.program), target_key(task.target, 1)
    return Trial(
        *keys, "t", "random", 7, mark, "ok", {"mark": mark}, trace.text, program_key(trace.program), seconds,
        (seconds, seconds * 2), created=1.7e9 + mark, version="0.1.0",
    )  # fmt: skip


def _written(mark: int) -> str:
    Path(f"{mark}.tsched").write_text(f'schedule s for copy {{ annotate(B, "mark", {mark}) }}', encoding="utf-8")
    return f"{mark}.tsched"


@pytest.fixture
def records(task: Task) -> Path:
    with Database.open(Path("r.sqlite")) as db:
        db.add_all([trial(task, 1, 3e-6), trial(task, 2, 2e-6), trial(task, 3, 1e-6)])
        db.add(replace(trial(task, 3, 1e-6), status="crash", seconds=None, times=(), phase="final"))
        db.add(replace(trial(task, 1, 1.5e-6), phase="final", created=1.8e9))
        db.add(replace(trial(task, 1, 9.0), task="other", task_key="x"))
    return Path("r.sqlite")


def test_list_and_best(records: Path) -> None:
    listed = call("db", "list", "--records", "r.sqlite")
    assert listed.exit_code == 0
    other, own = [line.split() for line in listed.stdout.splitlines()[1:]]
    assert other[0] == "other" and (own[0], own[2:6]) == ("t", ["5", "4", "1.50", "µs"])
    found = json.loads(call("db", "best", "--json", "--task", "t", "--records", "r.sqlite").stdout)
    assert [(g["task"], g["records"], g["best"]["seconds"], g["best"]["record"]) for g in found] == [
        ("t", 5, 1.5e-6, 5)
    ]
    # `list` has of each task what `best` has.
    assert json.loads(call("db", "list", "--json", "--task", "t", "--records", "r.sqlite").stdout) == found
    assert "random, seed 7" in call("db", "best", "--records", "r.sqlite").stdout
    assert call("db", "list", "--json", "--task", "gone", "--records", "r.sqlite").stdout == "[]\n"


def test_what_show_prints_can_be_replayed(records: Path) -> None:
    shown = call("db", "show", "5", "--records", "r.sqlite")
    assert shown.exit_code == 0
    assert "// record 5: t, 1.50 µs" in shown.stdout
    assert "2 samples from 1.50 µs to 3.00 µs" in shown.stdout
    Path("shown.tsched").write_text(shown.stdout, encoding="utf-8")
    assert call("verify", "f.tsched", "t", "shown.tsched").exit_code == 0
    facts = json.loads(call("db", "show", "4", "--json", "--records", "r.sqlite").stdout)
    assert (facts["status"], facts["seconds"], facts["decisions"]) == ("crash", None, {"mark": 3})
    missing = call("db", "show", "99", "--records", "r.sqlite")
    assert missing.exit_code == 1 and "E0710" in missing.stderr


def test_export_and_import_and_merge_add_each_record_once(records: Path) -> None:
    lines = call("db", "export", "--records", "r.sqlite").stdout
    assert call("db", "export", "--records", "r.sqlite", "--output", "all.jsonl").exit_code == 0
    assert Path("all.jsonl").read_text(encoding="utf-8") == lines
    assert call("db", "import", "all.jsonl", "--records", "new.sqlite").stdout == "all.jsonl: 6 records added\n"
    again = call("db", "import", "-", "--records", "new.sqlite", text=lines)
    assert again.stdout == "-: no records added, 6 there already\n"
    assert call("db", "export", "--records", "new.sqlite").stdout == lines
    with Database.open(Path("new.sqlite")) as db:
        db.add(replace(trial(tensorc_dsl.load("f.tsched", threads=1)["t"], 1, 1.0), seed=8))
    merged = call("db", "merge", "new.sqlite", "r.sqlite", "--records", "r.sqlite")
    assert merged.stdout == "new.sqlite: 1 record added, 6 there already\nr.sqlite: no records added, 7 there already\n"


def test_a_bad_line_is_told_and_the_others_are_imported(records: Path) -> None:
    lines = call("db", "export", "--records", "r.sqlite").stdout
    found = call("db", "import", "-", "--records", "new.sqlite", text=f"{lines}x\n")
    assert found.exit_code == 0
    assert "W0702" in found.stderr and "line 8: " in found.stderr
    assert "6 records added" in found.stdout
    assert call("db", "import", "-", "--records", "n.sqlite", text="x\n").exit_code == 1
    assert not Path("n.sqlite").exists()
    newer = call("db", "import", "-", "--records", "n.sqlite", text='{"kind": "format", "version": 99}\n')
    assert newer.exit_code == 1 and "E0701" in newer.stderr


def test_prune_keeps_the_best_programs_with_all_their_records(records: Path) -> None:
    would = call("db", "prune", "--keep", "1", "--dry-run", "--records", "r.sqlite")
    assert would.stdout == "3 records would be removed, 3 kept\n"
    assert (
        call("db", "prune", "--keep", "1", "--task", "t", "--records", "r.sqlite").stdout
        == "3 records removed, 2 kept\n"
    )
    left = [json.loads(x) for x in call("db", "export", "--records", "r.sqlite").stdout.splitlines()]
    assert [(x["task"], x["decisions"]["mark"], x["phase"]) for x in left[1:]] == [
        ("t", 1, "trial"), ("t", 1, "final"), ("other", 1, "trial")
    ]  # fmt: skip
    assert call("db", "prune", "--keep", "9", "--records", "r.sqlite").stdout == "no records removed, 3 kept\n"


def test_verify_runs_what_is_recorded(records: Path, task: Task) -> None:
    right = call(
        "db", "verify", "f.tsched", "--best", "9", "--threads", "1", "--time", "--json", "--records", "r.sqlite"
    )
    assert right.exit_code == 0, right.stderr
    found = json.loads(right.stdout)
    assert [(f["record"], f["problem"], f["recorded"]) for f in found] == [(5, None, 1.5e-6), (2, None, 2e-6)]
    assert all(f["now"] > 0 for f in found)
    with Database.open(records) as db:
        db.add(replace(trial(task, 1, 1e-7), program_key="of another version"))
        db.add(replace(trial(task, 1, 2e-7), trace="schedule s for gone { }", program_key="gone"))
    wrong = call("db", "verify", "f.tsched", "t", "--best", "2", "--threads", "1", "--records", "r.sqlite")
    assert wrong.exit_code == 1
    assert "another program" in wrong.stdout and "E0" in wrong.stdout


def _divided(task: Task, mark: int, seconds: float, scale: float) -> Trial:
    """A trial that took so many seconds, recorded as earlier versions did."""
    t = trial(task, mark, seconds / scale)
    return replace(
        t, times=(seconds, seconds, seconds), scale=scale, run="noisy", phase="again", features=(1.0,), columns="c"
    )


def test_times_that_were_divided_by_compounding_factors_are_repaired(task: Task) -> None:
    noisy = [_divided(task, mark, s, f) for mark, s, f in [(1, 2e-3, 2.74), (2, 5e-3, 40.7), (3, 25.6e-3, 107.0)]]
    first = replace(noisy[0], seconds=1.5e-3, times=(1.5e-3,), scale=1.0, phase="trial")
    kept = replace(_divided(task, 1, 4e-3, 2.0), run="quiet")
    with Database.open(Path("r.sqlite")) as db:
        db.add_all([first, *noisy, kept])
        # What is read before the repair is as it was measured, and no model learns from it.
        keys = noisy[0].task_key, noisy[0].target_key
        assert sorted(t.seconds or 0.0 for t in db.trials(*keys) if t.run == "noisy") == [1.5e-3, 2e-3, 5e-3, 25.6e-3]
        learnt = [m.seconds for m in db.others(Asked("another", "t"), keys[1], "c", float("inf"))]
        assert learnt == [2e-3, 1.5e-3]
        best = db.best(*keys)
        assert best is not None and best.seconds == 1.5e-3
    done = call("db", "verify", "f.tsched", "t", "--threads", "1", "--records", "r.sqlite")
    assert done.exit_code == 0
    assert done.stderr == "t: 3 records had times divided by wrong factors, and now have them as measured\n"
    with Database.open(Path("r.sqlite")) as db:
        stored = db.trials(*keys)
    assert [(t.seconds, t.scale) for t in stored] == [
        (1.5e-3, 1.0), (2e-3, 1.0), (5e-3, 1.0), (25.6e-3, 1.0), (2e-3, 2.0)
    ]  # fmt: skip
    assert [t.times for t in stored[1:4]] == [t.times for t in noisy]
    assert not call("db", "verify", "f.tsched", "t", "--threads", "1", "--records", "r.sqlite").stderr


def test_a_divided_time_below_the_roof_is_repaired(task: Task) -> None:
    low = _divided(task, 1, 1e-9, 2.0)
    with Database.open(Path("r.sqlite")) as db:
        db.add(low)
        assert db.wrong_factors(low.task_key, low.target_key, 0.4e-9) == {}
        (found,) = db.wrong_factors(low.task_key, low.target_key, 0.6e-9).values()
    assert (found.seconds, found.scale) == (1e-9, 1.0)


@pytest.mark.parametrize("command", ["list", "best"])
def test_where_there_are_no_records_nothing_is_listed(
    task: Task, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(Path("gone").absolute()))
    found = call("db", command)
    assert (found.exit_code, found.stdout) == (0, "")
    assert "there are no records" in found.stderr
    assert call("db", command, "--json").stdout == "[]\n"
    assert not Path("gone").exists()


@pytest.mark.parametrize("words", [("export",), ("prune", "--keep", "1"), ("merge", "gone.sqlite")])
def test_where_records_are_needed_there_is_an_error(task: Task, words: tuple[str, ...]) -> None:
    found = call("db", *words, "--records", "none.sqlite")
    assert found.exit_code == 1 and "E0711" in found.stderr


def test_a_misspelt_command_is_told(task: Task) -> None:
    assert "`merge`" in call("db", "merg").stderr


def test_what_a_record_says_cannot_act_on_the_terminal(records: Path, task: Task) -> None:
    with Database.open(records) as db:
        db.add(
            replace(trial(task, 2, 1e-9), message="\x1b[31mred", strategy="\x1b[31m", program_key="p", task="\x1b[2J")
        )
    for words in (("list",), ("best",), ("show", "7"), ("list", "--json")):
        assert "\x1b" not in call("db", *words, "--records", "r.sqlite").stdout, words
