"""Tests of `report`: which trials a page is about, what it writes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.insight import meant, searches
from tensorc_dsl.tuning.records.database import Database
from tests.page.known import searched, task_in

pytestmark = pytest.mark.usefixtures("few_points_are_looked_at")

WORDS = ("--threads", "1", "--records", "r.sqlite")


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return task_in(Path())


@pytest.fixture
def records(task: Task) -> None:
    with Database.open(Path("r.sqlite")) as database:
        database.add_all(searched(30))
        database.add_all([replace(t, seed=1, created=t.created + 99) for t in searched(20, "b" * 32, "bayes")])
    with Database.open(Path("other.sqlite")) as database:
        database.add_all(searched(12, "c" * 32, "descent"))


@pytest.mark.corpus
@pytest.mark.usefixtures("records")
def test_a_page_is_written_beside_the_working_folder(task: Task) -> None:
    found = call("report", "small.tsched", *WORDS)
    assert found.exit_code == 0, found.output
    assert found.stdout == "report: small.report.html\n"
    text = Path("small.report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and "all trials (2 searches)" in text
    # The winner's code, of this machine.
    assert "<summary>Its code: " in text and ("vfmadd" in text or "fmla" in text)


@pytest.mark.corpus
@pytest.mark.usefixtures("records")
@pytest.mark.parametrize(
    ("words", "titles"),
    [
        (("small", "bayes"), ["bayes/1"]),
        (("small", "random/0"), ["random/0"]),
        (("aaaa",), ["random/0"]),
        (("bayes", "random"), ["bayes/1", "random/0"]),
        (("small", "bayes", "other.sqlite"), ["bayes/1", "other.sqlite"]),
        (("other.sqlite",), ["other.sqlite"]),
    ],
)
def test_words_name_searches(words: tuple[str, ...], titles: list[str]) -> None:
    found = call("report", "small.tsched", *words, "--output", "x.html", *WORDS)
    assert found.exit_code == 0, found.output
    text = Path("x.html").read_text(encoding="utf-8")
    for title in ("random/0", "bayes/1", "other.sqlite"):
        assert (f">{title}</th>" in text) == (title in titles)


@pytest.mark.corpus
def test_databases_alone_need_no_other_one(task: Task, records: None) -> None:
    Path("r.sqlite").rename("mine.sqlite")
    found = call("report", "small.tsched", "mine.sqlite", "other.sqlite", *WORDS)
    assert found.exit_code == 0, found.output


@pytest.mark.usefixtures("records")
def test_an_unknown_search_is_an_error_that_names_those_there_are() -> None:
    found = call("report", "small.tsched", "small", "descent", *WORDS)
    assert found.exit_code == 1
    assert found.stderr == (
        "error[E0714]: no search of `small` is called `descent`, and there is no such database\n"
        "  = help: name one of these: `bayes/1`, `random/0`\n"
    )
    assert not Path("small.report.html").exists()


@pytest.mark.usefixtures("records")
def test_a_third_search_is_wrong_usage() -> None:
    assert call("report", "small.tsched", "small", "a", "b", "c", *WORDS).exit_code == 2


@pytest.mark.usefixtures("records")
def test_records_of_other_threads_are_of_no_use() -> None:
    found = call("report", "small.tsched", "--threads", "2", "--records", "r.sqlite")
    assert found.exit_code == 1
    assert found.stderr == (
        "error[E0713]: `small` has no trials on this machine in `r.sqlite`\n"
        "  = help: tune it first, with the same `--threads`\n"
    )


@pytest.mark.usefixtures("task")
def test_without_records_there_is_an_error() -> None:
    for words in ((), ("gone.sqlite",)):
        assert "E0711" in call("report", "small.tsched", *words, *WORDS).stderr
    assert not Path("r.sqlite").exists()


@pytest.mark.usefixtures("records")
def test_what_cannot_be_written_is_told_before_anything_else() -> None:
    Path("folder").mkdir()
    assert "E0903" in call("report", "small.tsched", *WORDS, "--output", "folder").stderr


def test_a_few_trials_make_a_page_that_says_so(task: Task) -> None:
    with Database.open(Path("r.sqlite")) as database:
        database.add_all(searched(3))
    assert call("report", "small.tsched", *WORDS).exit_code == 0
    text = Path("small.report.html").read_text(encoding="utf-8")
    assert "`small` has 2 valid trials of today&#x27;s space" in text and "The fastest schedule takes" in text


@pytest.mark.corpus
def test_a_winner_that_no_longer_fits_is_told(task: Task) -> None:
    trials = [replace(t, trace="schedule tiled for matmul { vectorize(gone) }\n") for t in searched(12)]
    with Database.open(Path("r.sqlite")) as database:
        database.add_all(trials)
    assert call("report", "small.tsched", *WORDS).exit_code == 0
    text = Path("small.report.html").read_text(encoding="utf-8")
    assert "The schedule does not fit the task as it is now" in text


@pytest.mark.corpus
def test_a_page_is_the_same_each_time_but_for_the_roof(task: Task, records: None) -> None:
    """Everything else is a function of the records."""

    def told() -> str:
        assert call("report", "small.tsched", *WORDS).exit_code == 0
        text = Path("small.report.html").read_text(encoding="utf-8")
        return text[text.index('id="importance"') : text.index('id="winner"')]

    assert told() == told()


def test_the_last_of_several_searches_is_meant(task: Task) -> None:
    first, second = searched(4, "abcd" + "0" * 28), searched(4, "abce" + "0" * 28)
    found = searches([*first, *second])
    assert [s.run[:4] for s in found] == ["abcd", "abce"]
    assert meant("random", found) is found[1] and meant("random/0", found) is found[1]
    assert meant("abcd", found) is found[0] and meant("abc", found) is None and meant("random/1", found) is None
    old = searches([replace(t, run="") for t in (*first, *second)])
    assert len(old) == 1 and meant("random", old) is old[0]
