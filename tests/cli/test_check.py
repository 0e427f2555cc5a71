"""`check`: its output in each format, for files, folders and standard input, and its exit status."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.check import items
from tensorc_dsl.elaborate import compute
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.syntax import tree

WRONG = "use nowhere\n\nmodule m(b: Block) {\n    paralel(b.loops[0])\n}\n"
UNUSED = "module m(b: Block) {\n    let x = 1\n}\n"
GOOD = "module m(b: Block) {\n    parallel(b.loops[0])\n}\n"
STUCK = """\
compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }
schedule never for copy { vectorize(B.loops[0]); vectorize(B.loops[0]) }
task t = copy(M=4)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TSCHED_PATH", raising=False)
    for name, text in (("wrong", WRONG), ("unused", UNUSED), ("good", GOOD)):
        Path(f"{name}.tsched").write_text(text)
    return tmp_path


def call(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], input=text)


def findings(*arguments: str, text: str | None = None) -> dict[str, Any]:
    return json.loads(call(*arguments, "--output-format", "json", text=text).stdout)


def test_text() -> None:
    result = call("good.tsched", "wrong.tsched", "unused.tsched")
    assert result.exit_code == 1
    assert result.stdout == "good.tsched: ok, 0 tasks\n"
    assert " --> wrong.tsched:4:5" in result.stderr
    assert "warning[W0201]" in result.stderr
    assert result.stderr.endswith("\n\n2 errors and 1 warning in 3 files\nfor more: tensorc-dsl explain E0232\n")
    assert "for more" not in call("unused.tsched").stderr


def test_warnings_fail_only_where_they_are_denied() -> None:
    assert call("unused.tsched").exit_code == 0
    assert "warning[W0201]" in call("unused.tsched").stderr
    assert call("unused.tsched", "--deny-warnings").exit_code == 1
    assert call("good.tsched", "--deny-warnings").exit_code == 0
    for output in ("json", "sarif", "github"):
        assert call("unused.tsched", "--output-format", output).exit_code == 0
        assert call("unused.tsched", "--output-format", output, "--deny-warnings").exit_code == 1


def test_json_holds_the_facts_and_the_places() -> None:
    result = call("wrong.tsched", "unused.tsched", "good.tsched", "--output-format", "json")
    assert (result.exit_code, result.stderr) == (1, "")
    told = json.loads(result.stdout)
    assert told["files"] == ["wrong.tsched", "unused.tsched", "good.tsched"]
    assert (told["version"], told["errors"], told["warnings"]) == (1, 2, 1)
    by_code = {f["code"]: f for f in told["findings"]}
    call_ = by_code["E0223"]
    assert (call_["file"], call_["severity"]) == ("wrong.tsched", "error")
    assert call_["message"] == "there is no primitive, module or function `paralel`"
    assert (call_["start"], call_["end"]) == ({"line": 4, "column": 5}, {"line": 4, "column": 12})
    assert {"kind": "help", "text": "did you mean `parallel`?"} in call_["notes"]
    assert by_code["W0201"]["severity"] == "warning"
    assert by_code["E0232"]["start"] == {"line": 1, "column": 5}


def test_json_of_what_cannot_be_read() -> None:
    (finding,) = findings("missing.tsched")["findings"]
    assert (finding["code"], finding["file"], finding["start"], finding["end"]) == (
        "E0901",
        "missing.tsched",
        None,
        None,
    )
    assert findings("good.tsched") == {
        "version": 1,
        "files": ["good.tsched"],
        "errors": 0,
        "warnings": 0,
        "findings": [],
    }


def test_sarif_has_what_the_standard_requires() -> None:
    """The required properties of SARIF 2.1.0 (sections 3.13 to 3.30) and its rules about regions and rule indices."""
    Path("my file.tsched").write_text(WRONG)
    log = json.loads(call("my file.tsched", "unused.tsched", "missing.tsched", "--output-format", "sarif").stdout)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "tensorc-dsl"
    assert run["columnKind"] == "unicodeCodePoints"
    assert [i["executionSuccessful"] for i in run["invocations"]] == [True]
    rules = [r["id"] for r in driver["rules"]]
    assert len(set(rules)) == len(rules)
    levels = {r["ruleId"]: r["level"] for r in run["results"]}
    assert levels == {"E0223": "error", "E0232": "error", "W0201": "warning", "E0901": "error"}
    for r in run["results"]:
        assert rules[r["ruleIndex"]] == r["ruleId"]
        assert r["message"]["text"]
        (place,) = r["locations"]
        uri = place["physicalLocation"]["artifactLocation"]["uri"]
        assert " " not in uri
        region = place["physicalLocation"].get("region")
        if r["ruleId"] == "E0901":
            assert region is None
        else:
            assert 1 <= region["startLine"] <= region["endLine"]
            assert region["startColumn"] >= 1
            assert (region["startLine"], region["startColumn"]) < (region["endLine"], region["endColumn"])
    assert "my%20file.tsched" in {
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]
    }
    (empty,) = json.loads(call("good.tsched", "--output-format", "sarif").stdout)["runs"]
    assert (empty["results"], empty["tool"]["driver"]["rules"]) == ([], [])


def test_github_marks_lines() -> None:
    Path("a,b:c%.tsched").write_text(WRONG)
    result = call("a,b:c%.tsched", "unused.tsched", "--output-format", "github")
    use, wrong, unused = result.stdout.splitlines()
    assert use.startswith(
        "::error file=a%2Cb%3Ac%25.tsched,line=1,col=5,endLine=1,endColumn=12,title=tensorc-dsl E0232::"
    )
    assert "%0A" in use  # notes follow on lines of their own
    assert "did you mean `parallel`?" in wrong
    assert unused.startswith("::warning file=unused.tsched,line=2,col=9,")
    assert call("good.tsched", "--output-format", "github").stdout == ""


def test_columns_count_characters() -> None:
    (finding,) = findings("-", text='/// ä\nmodule m(b: Block) { f("äöü", x) }\n'.replace("f(", "unroll("))["findings"][
        :1
    ]
    assert (finding["file"], finding["start"]["line"]) == ("<stdin>", 2)


def test_folders_are_searched() -> None:
    for name in ("sub/one.tsched", "sub/deep/two.tsched", ".hidden/three.tsched", "venv/four.tsched"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(GOOD)
    Path("venv/pyvenv.cfg").write_text("")
    told = findings(".", "sub")
    assert told["files"] == [
        "good.tsched", "sub/deep/two.tsched", "sub/one.tsched", "unused.tsched", "wrong.tsched",
        "sub/deep/two.tsched", "sub/one.tsched",
    ]  # fmt: skip
    Path("empty").mkdir()
    assert "E0901" in call("empty").stderr


def test_a_finding_in_a_file_that_several_use_is_told_once() -> None:
    Path("lib.tsched").write_text("module a(b: Block) { nothing(b) }\n")
    Path("x.tsched").write_text("use lib\n")
    Path("y.tsched").write_text("use lib\n")
    told = findings("x.tsched", "y.tsched", "lib.tsched")
    assert [(f["file"], f["code"]) for f in told["findings"]] == [("lib.tsched", "E0223")]


def test_expand_finds_what_only_a_schedule_shows() -> None:
    assert call("-", text=STUCK).exit_code == 0
    result = call("-", "--expand", text=STUCK)
    assert result.exit_code == 1
    assert "<- this loop" in result.stderr


def test_each_task_is_elaborated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check and the expansion together, and so are instructions: files may have thousands of tasks."""
    runs: list[str] = []
    run, read = compute._Elaboration.run, items.intrinsic_from_tree

    def counted(self: compute._Elaboration) -> None:
        runs.append("compute")
        run(self)

    def counted_read(definition: tree.IntrinsicDef, *, right: bool = False) -> Intrinsic:
        runs.append("instruction")
        return read(definition, right=right)

    monkeypatch.setattr(compute._Elaboration, "run", counted)
    monkeypatch.setattr(items, "intrinsic_from_tree", counted_read)
    text = "use std.intrinsics.x86\ncompute f(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\nschedule s for f {}\n"
    counts: list[Counter[str]] = []
    for tasks in (5, 20):
        runs.clear()
        many = "".join(f"task t{n} = f(M={n + 1})\n" for n in range(tasks))
        assert call("-", "--expand", text=text + many).output == f"-: ok, {tasks} tasks\n"
        counts.append(Counter(runs))
    assert counts[0]["compute"] == 1 + 5 and counts[1]["compute"] == 1 + 20
    assert counts[1]["instruction"] <= counts[0]["instruction"]


def test_search_path_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("given").mkdir()
    Path("given/nowhere.tsched").write_text(GOOD)
    text = "use nowhere.{m}\nspace s for llvm { m }\n"
    assert call("-", text=text).exit_code == 1
    assert call("-", "-I", "given", text=text).exit_code == 0
    assert CliRunner().invoke(main, ["-I", "given", "check", "-"], input=text).exit_code == 0
    assert call("-", "-I", "missing", text=text).exit_code == 2
    monkeypatch.setenv("TSCHED_PATH", "given")
    assert call("-", text=text).exit_code == 0
