"""Words of the command line: misspelt ones, and tasks that need not be named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.faces.cli.main import main

ONE = """\
compute twice(A: f32[M]) -> B: f32[M] { B[i] = A[i] + A[i] }
schedule plain for twice { vectorize(B.loops[-1]) }
task only = twice(M=16) with plain
"""
TWO = f"{ONE}task other = twice(M=32) with plain\n"
PROGRAM = "program {}(A: f32[4], B: f32[4]) {{ for i in 4 {{ block B {{ spatial v in 4 = i\n B[v] = A[v] }} }} }}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "one.tsched").write_text(ONE)
    (tmp_path / "two.tsched").write_text(TWO)
    (tmp_path / "none.tsched").write_text(ONE.replace("task only = twice(M=16) with plain\n", ""))
    (tmp_path / "pair.tsched").write_text(PROGRAM.format("a") + PROGRAM.format("b"))
    return tmp_path


def call(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tnue",), "No such command 'tnue'. Did you mean `tune`?"),
        (("chekc", "x"), "Did you mean `check`?"),
        (("Verify",), "Did you mean `verify`?"),
        (("module", "lst"), "Did you mean `list`?"),
        (("module", "q"), "No such command 'q'. There are `list`, `new`, `which`"),
        (("one.tsched",), "A file is given to a command: `main check one.tsched`"),
        (("./one",), "A file is given to a command: `main check ./one`"),
        (("help",), "`main --help` lists the commands"),
        (("tune", "one.tsched", "--trails", "3"), "'--trials'"),
        (("check", "--deny-warning", "x"), "--deny-warnings"),
        (("--colour", "never", "check", "x"), "--color"),
    ],
)
def test_the_nearest_word_is_named(folder: Path, words: Sequence[str], said: str) -> None:
    result = call(*words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("cuda", "targets of kind `cuda` are brought by name: `use std.gpu.targets.{sm_80}`, and `--target sm_80`"),
        ("sm_90", "bring it: `use std.gpu.targets.{sm_90}`"),
        ("h100", "a file has the targets that it describes or uses: `use std."),
        ("natve", "did you mean `native`?"),
    ],
)
def test_a_target_that_the_file_lacks(folder: Path, target: str, said: str) -> None:
    result = call("show", "one.tsched", "--target", target)
    assert (result.exit_code, said in result.stderr) == (1, True), result.stderr


def test_what_is_like_nothing_is_not_guessed() -> None:
    assert "Did you mean" not in call("xyzzy").stderr


def sample(name: str) -> str:
    Path("trace.tsched").write_text(call("sample", name, "only").stdout)
    return "trace.tsched"


def test_the_only_task_need_not_be_named(folder: Path) -> None:
    trace = sample("one.tsched")
    for words in (
        ("sample",), ("show",), ("show", "--stage", "ast"), ("show", "--stage", "trace"), ("verify",),
        ("compile", "--emit", "header"),
    ):  # fmt: skip
        command, *options = words
        short, full = call(command, "one.tsched", *options), call(command, "one.tsched", "only", *options)
        assert (short.exit_code, short.stdout) == (0, full.stdout), short.output
        assert short.stdout
    assert call("verify", "one.tsched", trace).stdout == "only: valid\n"
    assert call("sample", "-", text=ONE).stdout == call("sample", "one.tsched", "only").stdout
    assert call("verify", "-", text=ONE).stdout == "only: valid\n"
    assert call("sample", "one.tsched", "--mcpu", "help").stdout.startswith("CPUs of ")
    assert call("verify", "one.tsched", "--mcpu", "help").stdout.startswith("CPUs of ")


def test_what_is_measured_need_not_be_named_either(folder: Path) -> None:
    trace = sample("one.tsched")
    for words in (("replay", "one.tsched", trace), ("replay", "one.tsched", "only", trace), ("run", "one.tsched")):
        result = call(*words, "--threads", "1")
        assert result.exit_code == 0, result.output
        assert "the result is right" in result.stdout
    assert call("tune", "one.tsched", "--trials", "2", "--threads", "1").exit_code == 0
    assert Path("only.best.tsched").is_file()


@pytest.mark.parametrize("command", ["sample", "show", "compile", "run"])
def test_which_task_is_meant_is_asked(folder: Path, command: str) -> None:
    several = call(command, "two.tsched")
    assert (several.exit_code, "E0925" in several.stderr) == (1, True), several.output
    assert "name one: `only`, `other`" in several.stderr
    assert "two.tsched" in several.stderr


@pytest.mark.parametrize("command", ["sample", "show", "compile", "tune", "run"])
def test_a_file_without_tasks(folder: Path, command: str) -> None:
    result = call(command, "none.tsched")
    assert (result.exit_code, "`none.tsched` has no task" in result.stderr) == (1, True), result.output


def test_words_that_may_be_a_task_or_a_schedule(folder: Path) -> None:
    trace = sample("one.tsched")
    assert "E0925" in call("replay", "two.tsched", trace).stderr
    assert "E0925" in call("verify", "two.tsched", trace).stderr
    assert "did you mean `only`?" in call("verify", "one.tsched", "onyl").stderr
    assert "E0901" in call("replay", "one.tsched", "missing.tsched").stderr
    for words in (("replay", "one.tsched"), ("replay", "one.tsched", "only")):
        assert (call(*words).exit_code, "Missing argument 'TRACE'" in call(*words).stderr) == (2, True)
    assert call("replay", "one.tsched", "only", trace, "more").exit_code == 2
    assert call("verify", "one.tsched", "only", trace, "more").exit_code == 2


def test_two_programs_are_compared_still(folder: Path) -> None:
    assert call("verify", "pair.tsched").stdout == "a and b: valid\n"
    assert call("verify", "-", text=Path("pair.tsched").read_text()).stdout == "a and b: valid\n"
    assert "E0809" in call("verify", "none.tsched").stderr


def test_all_tasks_of_files_and_folders_are_proved(folder: Path) -> None:
    assert call("verify", "two.tsched").stdout == "only: valid\nother: valid\n"
    Path("none.tsched").rename("library.txt")
    both = call("verify", "one.tsched", "two.tsched").stdout
    assert both == "one.tsched: only: valid\ntwo.tsched: only: valid\ntwo.tsched: other: valid\n"
    every = call("verify", ".", "one.tsched").stdout.splitlines()
    assert every == ["one.tsched: only: valid", "pair.tsched: a and b: valid", *both.splitlines()[1:]]


def test_verify_tells_a_workflow_the_line_of_the_task(folder: Path) -> None:
    assert call("verify", ".", "--output-format", "github").stdout == ""
    wrong = PROGRAM.format("b").replace("A[v] }", "0.0 }")
    Path("pair.tsched").write_text(PROGRAM.format("a") + wrong)
    Path("broken.tsched").write_text("task t = nothing(M=1)\n")
    found = call("verify", ".", "--output-format", "github")
    assert found.exit_code == 1
    broken, pair = found.stdout.splitlines()
    assert broken.startswith("::error file=broken.tsched,line=1,col=10,")
    assert pair.startswith("::error file=pair.tsched,line=3,col=9,endLine=3,endColumn=10,title=tensorc-dsl E08")
    facts = json.loads(call("verify", "one.tsched", "pair.tsched", "--output-format", "json").stdout)
    assert [(r["what"], r["result"]) for r in facts["results"]] == [("only", "valid"), ("a and b", "invalid")]
    assert "A" in facts["results"][1]["inputs"]


def test_help_lists_commands_with_whole_sentences(folder: Path) -> None:
    text = call("--help").stdout
    assert "..." not in text.partition("Commands:")[2]
    assert "Prove that a schedule computes what its task does" in " ".join(text.split())
