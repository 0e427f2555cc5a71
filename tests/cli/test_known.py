"""`run` and `compile` of a task without records, and `tune --write-prior`: what they take, write and say."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.faces.api import searching
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records.shipped import Shipped, ShippedFile, ShippedMachine, ShippedTask
from tensorc_dsl.tuning.search.loop_features import COLUMNS
from tests.search.test_zero import FILE, filled

pytestmark = pytest.mark.usefixtures("few_points_are_looked_at")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "f.tsched").write_text(FILE)
    filled(tmp_path / "r.sqlite", "abcd")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--threads", "1", "--records", "r.sqlite"])


@pytest.mark.corpus
def test_run_of_an_untuned_task_takes_the_predicted_schedule(folder: Path) -> None:
    done = call("run", "f.tsched", "e")
    assert done.exit_code == 0, done.output
    (line,) = [x for x in done.stderr.splitlines() if "not tuned" in x]
    assert line.startswith("not tuned: schedule predicted from 4 other tasks on this machine, probably 1.0–")
    assert line.endswith(" times the time of the best; `tensorc-dsl tune f.tsched e` finds out")
    assert "the result is right" in done.stdout
    assert "not tuned" not in call("run", "f.tsched", "a").stderr


@pytest.mark.corpus
def test_run_has_the_origin_of_a_schedule_as_data(folder: Path) -> None:
    found = json.loads(call("run", "f.tsched", "e", "--json").stdout)
    assert found.keys() == {"task", "seconds", "max_error", "compared", "schedule"} and found["seconds"] > 0
    schedule = found["schedule"]
    assert (schedule["from"], schedule["tasks"], schedule["trials"], schedule["probability"]) == (
        "predicted",
        4,
        96,
        0.8,
    )
    assert schedule["trace"].startswith("schedule tiled for matmul {")
    assert json.loads(call("run", "f.tsched", "a", "--json").stdout)["schedule"]["from"] == "recorded"


@pytest.mark.corpus
def test_compile_of_an_untuned_task_says_where_its_schedule_is_from(folder: Path) -> None:
    done = call("compile", "f.tsched", "e", "--emit", "header")
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("not tuned: schedule predicted from 4 other tasks on this machine, probably 1.0–")
    assert "   The schedule is predicted from 4 other tasks on this machine, probably 1.0–" in done.stdout
    for task, words in (("a", "the fastest recorded one, "), ("fixed", "given")):
        done = call("compile", "f.tsched", task, "--emit", "header")
        assert done.stderr == "" and f"The schedule is {words}" in done.stdout
    done = call("compile", "f.tsched", "e", "--emit", "llvm", "--seed", "3")
    assert r"\22schedule\22: \22drawn with seed 3\22" in done.stdout


def test_compile_takes_what_is_asked_for_before_what_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call("compile", "f.tsched", "a", "--emit", "header", "--condition", "rows=[16, 4]")
    assert "E0911" in done.stderr and done.exit_code == 1
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "none"))
    done = CliRunner().invoke(main, ["compile", "f.tsched", "a", "--emit", "header"])
    assert "E0911" in done.stderr and done.exit_code == 1
    assert not Path("none").exists()


def test_compile_warns_of_records_of_another_version(folder: Path) -> None:
    from tensorc_dsl.tuning.records.database import Database

    with Database.open(folder / "r.sqlite") as db:
        db._connection.execute('UPDATE trials SET modules = \'{"schedule tiled": "old"}\'')
    for command in (("run", "f.tsched", "a"), ("compile", "f.tsched", "a", "--emit", "header")):
        assert (
            "warning[W0703]: the best record of `a` was made by another version of schedule `tiled`"
            in call(*command).stderr
        )


@pytest.mark.corpus
def test_tune_writes_the_prior_and_starts_from_it(folder: Path) -> None:
    done = call("tune", "f.tsched", "a", "--trials", "12", "--strategy", "random", "--write-prior")
    assert done.exit_code == 0, done.output
    assert "prior: f_prior.tsched\n" in done.stderr
    text = Path("f_prior.tsched").read_text()
    assert "task a = matmul(M=64, N=64, K=32) with a_prior\n" in text and "prior a_prior for tiled {" in text
    assert CliRunner().invoke(main, ["check", "f_prior.tsched"]).exit_code == 0
    assert CliRunner().invoke(main, ["fmt", "--check", "f_prior.tsched"]).exit_code == 0
    again = call("tune", "f.tsched", "a", "--trials", "2", "--resume", "--write-prior", "other.tsched", "--json")
    assert json.loads(again.stdout)["prior_file"] == "other.tsched" and Path("other.tsched").exists()
    done = call("tune", "f_prior.tsched", "a", "--trials", "2", "--json-lines")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["prior_file"] is None
    (informed,) = [e for e in events if e["event"] == "informed"]
    assert (informed["tasks"], informed["trials"]) == (3, 72)


@pytest.mark.corpus
def test_tune_learns_from_the_records_of_the_package_unless_told_not_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(columns: str) -> Shipped:
        width = len(COLUMNS)
        task = ShippedTask("t", [1.0 + n for n in range(9)], [[float(n) for n in range(9)]] * width, [])
        return Shipped(ShippedFile(columns, [ShippedMachine("llvm:other", {"l3": 7}, [task])]))

    monkeypatch.setattr(searching, "shipped", table)

    def tuned(*more: str) -> Result:
        return call("tune", "f.tsched", "b", "--trials", "1", *more)

    assert "learns from 81 trials of 4 tasks, 9 of them on 1 other machine\n" in tuned().stderr
    assert "learns from 72 trials of 3 other tasks on this machine\n" in tuned("--no-shipped").stderr
    lines = [json.loads(line) for line in tuned("--json-lines").stdout.splitlines()]
    (informed,) = [e for e in lines if e["event"] == "informed"]
    assert (informed["tasks"], informed["trials"], informed["elsewhere"], informed["machines"]) == (4, 81, 9, 1)


def test_a_prior_that_cannot_be_written_is_told_before_the_search(folder: Path) -> None:
    Path("beside.tsched").write_text("module nothing(b: Block) {}\n")
    Path("g.tsched").write_text("use beside.{nothing}\n" + FILE)
    Path("there").mkdir()
    for path, message in (
        ("f.tsched", "--write-prior would replace FILE"), ("no/such.tsched", "E0903"), ("there/g.tsched", "E0232"),
    ):  # fmt: skip
        file = "g.tsched" if path.startswith("there") else "f.tsched"
        done = call("tune", file, "a", "--trials", "2", "--write-prior", path)
        assert message in done.stderr and done.exit_code in (1, 2), done.output
        assert "building" not in done.stderr
    done = call("tune", "f.tsched", "a", "--trials", "2", "--replay", "x.tsched", "--write-prior")
    assert done.exit_code in (1, 2) and not Path("f_prior.tsched").exists()


@pytest.mark.corpus
def test_too_few_trials_write_no_prior(folder: Path) -> None:
    done = CliRunner().invoke(
        main,
        [
            "tune",
            "f.tsched",
            "e",
            "--trials",
            "2",
            "--threads",
            "1",
            "--records",
            "new.sqlite",
            "--write-prior",
            "p.tsched",
            "--json",
        ],
    )
    assert done.exit_code == 1 and "E0712" in done.stderr
    assert json.loads(done.stdout)["prior_file"] is None
    assert not Path("p.tsched").exists()


@pytest.mark.corpus
@pytest.mark.parametrize(
    "command",
    [
        ("run", "f.tsched", "a"),
        ("run", "f.tsched", "fixed"),
        ("compile", "f.tsched", "a", "--emit", "header"),
        ("db", "list"),
        ("db", "best", "--json"),
        ("db", "show", "1"),
        ("db", "verify", "f.tsched", "a"),
    ],
)
def test_a_database_that_is_named_and_not_there_is_an_error(folder: Path, command: tuple[str, ...]) -> None:
    for typo in ("typo.sqlite", "none/typo.sqlite", "empty.sqlite"):
        Path("empty.sqlite").touch()
        done = CliRunner().invoke(main, [*command, "--records", typo])
        assert done.exit_code == 1 and f"error[E0711]: there are no records in `{typo}`" in done.stderr, done.output
        assert done.stdout == "" and not Path("typo.sqlite").exists() and not Path("none").exists()


@pytest.mark.corpus
def test_a_schedule_that_is_not_recorded_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    done = CliRunner().invoke(main, ["run", "f.tsched", "a", "--threads", "1"])
    assert done.exit_code == 0
    assert "warning[W0705]: no recorded schedule of `a` on this machine: it is drawn with seed 0" in done.stderr
    tasks = tensorc_dsl.load("f.tsched", threads=1)
    for records, task, said in (
        (None, "a", "it is drawn with seed 0"),
        ("r.sqlite", "e", "it is predicted from 4 other tasks on this machine"),
    ):
        with pytest.warns(UserWarning, match=f"W0705.*no recorded schedule of `{task}` on this machine: {said}"):
            tasks[task].best(records)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tasks["a"].best("r.sqlite")
        tasks["fixed"].best()
    for read in (tasks["a"].best, tasks["a"].known, tasks["a"].recorded):
        with pytest.raises(tensorc_dsl.TschedError) as caught:
            read("typo.sqlite")
        assert caught.value.diagnostics[0].code == "E0711"
    assert tasks["a"].recorded() is None
