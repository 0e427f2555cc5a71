"""Tests of `tune` as used by programs: JSON lines of events, time budgets, and killed and resumed searches."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial
from tests.started import ALONE

FILE = """\
use std.cpu
use std.ops.{matmul}

task small = matmul(M=32, N=32, K=32)
"""

TILES = """\
use std.ops.{matmul}

schedule tiles for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=3, max_innermost=32)
    let columns ~ sample_perfect_tile(j, parts=2, max_innermost=32)
    let [i0, i1, i2] = split(i, rows)
    let [j0, j1] = split(j, columns)
    reorder(i0, j0, i1, k, i2, j1)
}

task small = matmul(M=32, N=32, K=32) with tiles
"""
"""A space of 126 programs, each of which is expanded at once: what a search tells does not depend on the space."""

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tune.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("f.tsched").write_text(FILE, encoding="utf-8")
    return tmp_path


WORDS = ("tune", "f.tsched", "small", "--threads", "1", "--records", "r.sqlite", "--strategy", "random")


def call(*words: str) -> Result:
    return CliRunner().invoke(main, [*WORDS, *words])


def documented() -> dict[str, set[str]]:
    """The events of the page and their fields."""
    rows = re.findall(r"^\| (`[^|]*`) \| [^|]* \| ([^|]*)\|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    found: dict[str, set[str]] = {}
    for events, fields in rows:
        names = set(re.findall(r"`(\w+)`", re.sub(r"as of `measured`", "", fields)))
        for event in re.findall(r"`(\w+)`", events):
            found[event] = names
    return found | {"corrected": found["measured"]}


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_event_is_a_line_as_the_page_says() -> None:
    result = call("--trials", "3", "--json-lines")
    assert result.exit_code == 0, result.stderr
    found = lines(result.stdout)
    page = documented()
    for line in found[:-1]:
        assert line.keys() == {"event", "task"} | page[line["event"]], line
    kinds = [line["event"] for line in found]
    assert [k for k in kinds if k not in ("verifying", "corrected", "drifted", "settled", "slowed", "sharing")] == [
        "started", "proposed", "preparing", "prepared", "measured", "measured", "measured", "learnt", "comparing",
        "finished", "result",
    ]  # fmt: skip
    assert [line["trial"] for line in found if line["event"] == "measured"] == [1, 2, 3]
    assert found[-1]["best_file"] == "small.best.tsched"


def test_one_kind_of_json_at_a_time() -> None:
    assert call("--json", "--json-lines").exit_code == 2


@pytest.mark.parametrize("wrong", ["", "soon", "-1s", "0", "10x", "1m1h", "m", "1e9999"])
def test_a_budget_is_a_time(wrong: str) -> None:
    found = call("--budget", wrong)
    assert found.exit_code == 2 and "is no time" in found.stderr


@pytest.mark.parametrize("wrong", ["", "2", "0%", "-1%", "two%", "0.02", "%", "1e3%"])
def test_a_share_has_a_percent_sign(wrong: str) -> None:
    found = call("--until", wrong, "--strategy", "bayes")
    assert found.exit_code == 2 and "is no share above 0: write 2% or 0.5%" in found.stderr


def test_a_strategy_that_states_no_regret_cannot_end_at_one() -> None:
    found = call("--until", "2%")
    assert found.exit_code == 2
    assert "'random' does not say how much faster another schedule may be, as --until needs; bayes does" in found.stderr


def test_a_regret_is_told_and_ends_a_search() -> None:
    Path("f.tsched").write_text(TILES, encoding="utf-8")
    found = call("--strategy", "bayes", "--until", "900%", "--trials", "64", "--json-lines")
    assert found.exit_code == 0, found.stderr
    told = lines(found.stdout)
    regrets = [line for line in told if line["event"] == "regret"]
    assert all(line.keys() == {"event", "task"} | documented()["regret"] for line in regrets)
    assert len(regrets) == 2 and all(0.0 <= line["share"] <= 9.0 for line in regrets)
    assert told[0]["until"] == 9.0
    assert told[-1]["enough"] is True and told[-1]["trials"] == 24 and told[-1]["regret"] == regrets[-1]["share"]


def test_a_budget_ends_a_search_without_trials() -> None:
    found = call("--budget", "0.001s", "--json")
    assert found.exit_code in (0, 3)
    assert json.loads(found.stdout)["trials"] <= 8


def trials() -> list[Trial]:
    with Database.open(Path("r.sqlite")) as db:
        found = [k.trial for k in db.all()]
    return [t for t in found if isinstance(t, Trial) and t.phase == "trial"]


@pytest.mark.corpus("endings of searches")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_search_that_is_killed_goes_on(number: signal.Signals) -> None:
    command = [
        sys.executable,
        "-c",
        f"{ALONE}from tensorc_dsl.faces.cli.main import main; main()",
        *WORDS,
        "--trials",
        "7",
    ]
    with subprocess.Popen(
        [*command, "--json-lines"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdout is not None
        seen = 0
        for line in run.stdout:
            seen += json.loads(line)["event"] == "measured"
            if seen == 3:
                run.send_signal(number)
                break
        run.communicate()
    before = trials()
    assert len(before) >= 3
    resumed = call("--trials", "7", "--resume", "--json-lines")
    assert resumed.exit_code == 0, resumed.stderr
    assert next(x["trials"] for x in lines(resumed.stdout) if x["event"] == "resumed") == len(before)
    after = trials()
    assert after[: len(before)] == before
    assert [t.trial for t in after] == list(range(7))
    assert len({t.program_key for t in after}) == 7 and len({t.run for t in after}) == 1


def test_where_nothing_is_recorded_a_search_begins_anew() -> None:
    found = call("--trials", "1", "--resume")
    assert found.exit_code == 0
    assert "begins anew" in found.stderr


TWO = f"""{FILE}
task other = matmul(M=16, N=16, K=16)
"""


def test_without_a_name_all_tasks_of_a_file_are_tuned() -> None:
    Path("f.tsched").write_text(TWO, encoding="utf-8")
    words = [w for w in WORDS if w != "small"]
    found = CliRunner().invoke(main, [*words, "--trials", "3", "--json", "--weight", "other=3"])
    assert found.exit_code == 0, found.stderr
    results = json.loads(found.stdout)
    assert [r["task"] for r in results] == ["small", "other"]
    assert sum(r["trials"] for r in results) == 6
    assert Path("small.best.tsched").exists() and Path("other.best.tsched").exists()
    resumed = CliRunner().invoke(main, [*words, "--trials", "3", "--json-lines", "--resume", "--weight", "other=3"])
    told = lines(resumed.stdout)
    assert {x["task"]: x["trials"] for x in told if x["event"] == "resumed"} == {
        r["task"]: r["trials"] for r in results
    }
    assert [x["task"] for x in told if x["event"] == "result"] == ["small", "other"]
    assert len(trials()) == 6  # none is measured twice


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("small", "other", "--output", "x.tsched"), "give one task"),
        (("--weight", "gone=2"), "there is no search for a task 'gone'"),
        (("--weight", "small=0"), "no positive number"),
        (("--weight", "small=much"), "no positive number"),
        (("--weight", "small"), "not NAME=VALUE"),
    ],
)
def test_wrong_usage_of_several_tasks(words: tuple[str, ...], said: str) -> None:
    Path("f.tsched").write_text(TWO, encoding="utf-8")
    found = CliRunner().invoke(main, [*(w for w in WORDS if w != "small"), *words])
    assert found.exit_code == 2 and said in found.stderr
