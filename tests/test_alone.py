"""The file that `tune` writes is run, edited and tuned by itself."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.api.alone import alone, written
from tensorc_dsl.cli.main import main

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.tsched"))

OWN = """\
compute add(A: f32[M, N], B: f32[M, N]; times: int = 1) -> C: f32[M, N] { C[i, j] = A[i, j] + B[i, j] * f32(times) }
schedule rows for add {
    let wide ~ sample_categorical([2, 4])
    split(C.loops[1], [_, wide], partial=true)
}
task small = add(M=6, N=1..9 at [3, 8], times=2) with rows
"""
LIBRARY = """\
use std.cpu
use std.ops.{matmul}
task product = matmul(M=8, N=16, K=8)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.tsched").write_text(OWN)
    (tmp_path / "library.tsched").write_text(LIBRARY)
    (tmp_path / "not-a-name.tsched").write_text(OWN)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.tsched").write_text(OWN)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("file", "task", "use"),
    [
        ("own.tsched", "small", "use own.{add}"),
        ("library.tsched", "product", "use std.ops.{matmul}"),
        ("inner/deep.tsched", "small", "use inner.deep.{add}"),
    ],
)
def test_the_best_schedule_is_a_file_of_its_own(folder: Path, file: str, task: str, use: str) -> None:
    best = f"{task}.best.tsched"
    assert call("tune", file, task, "--trials", "2", "--records", "r.sqlite").exit_code == 0
    text = Path(best).read_text()
    assert text.splitlines()[2] == use
    assert call("check", best).exit_code == 0
    assert call("fmt", "--check", best).exit_code == 0
    assert call("replay", file, task, best).exit_code == 0
    assert call("run", best, "--records", "none.sqlite").exit_code == 0
    # A draw without its pin is searched again.
    opened = re.sub(r"(let (?:wide|step) ~ .*) := .*", r"\1", text)
    assert opened != text
    Path("again.tsched").write_text(opened)
    again = call("tune", "again.tsched", "--trials", "2", "--records", "r.sqlite", "--output", "again.best.tsched")
    assert again.exit_code == 0, again.stderr
    assert use in Path("again.best.tsched").read_text()


@pytest.mark.parametrize("file", ["not-a-name.tsched", "../own.tsched"])
def test_where_no_use_reaches_the_compute_the_command_is_told(
    folder: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if file.startswith(".."):
        monkeypatch.chdir(folder / "inner")
    assert call("tune", file, "--trials", "2", "--records", "r.sqlite").exit_code == 0
    lines = Path("small.best.tsched").read_text().splitlines()
    assert lines[2] == f"// tensorc-dsl replay {file} small small.best.tsched"
    assert lines[3].startswith("schedule rows for add")
    assert call(*lines[2].split()[2:]).exit_code == 0


@pytest.mark.parametrize("options", [("--target", "native"), ("--threads", "1"), ("-I", "inner")])
def test_the_command_has_the_options_of_the_search(folder: Path, options: tuple[str, ...]) -> None:
    name = "not-a-name.tsched"
    assert call("tune", name, "--trials", "1", "--records", "r.sqlite", *options).exit_code == 0
    command = Path("small.best.tsched").read_text().splitlines()[2].split()[2:]
    assert command == ["replay", name, "small", "small.best.tsched", *options]
    assert call(*command).exit_code == 0


def test_the_command_names_the_target_of_another_machine(folder: Path) -> None:
    """A schedule for it is not of this machine, so the file cannot stand by itself."""
    (folder / "wide.tsched").write_text('target wide = llvm(cpu="haswell", cores=1)\n' + OWN)
    task = tensorc_dsl.load("wide.tsched", threads=1, target="wide")["small"]
    text = written(task, task.sample(0), folder / "x.tsched")
    assert text.startswith(f"// tensorc-dsl replay wide.tsched small {folder}/x.tsched --target wide --threads 1\n")


@pytest.mark.parametrize(("file", "task"), [("own.tsched", "small"), ("library.tsched", "product")])
def test_a_kernel_is_saved_as_the_command_writes_it(folder: Path, file: str, task: str) -> None:
    home = tensorc_dsl.load(file, threads=1)[task]
    home.replay(home.sample(0)).save("saved.tsched")
    (again,) = tensorc_dsl.load("saved.tsched", threads=1).values()
    assert again.sample(0).text == home.sample(0).text
    assert home.replay("saved.tsched").trace.text == home.sample(0).text


def test_a_kernel_of_a_text_or_a_pickle_is_saved_as_its_schedule(folder: Path) -> None:
    home = tensorc_dsl.loads(OWN, threads=1)["small"]
    kernel = home.replay(home.sample(0))
    for one in (kernel, pickle.loads(pickle.dumps(kernel))):
        one.save("saved.tsched")
        assert Path("saved.tsched").read_text() == home.sample(0).text
        assert home.replay("saved.tsched").trace.text == home.sample(0).text


def test_two_schedules_of_one_name_are_no_trace(folder: Path) -> None:
    task = tensorc_dsl.load("own.tsched", threads=1)["small"]
    text = task.sample(0).text
    Path("two.tsched").write_text(text + text.replace("[2, 4]", "[4]"))
    with pytest.raises(tensorc_dsl.TschedError) as caught:
        task.frozen("two.tsched")
    (found,) = caught.value.diagnostics
    assert found.code == "E0221" and found.notes[0].text == "the first one: two.tsched:1:10"


def test_what_reads_back_as_something_else_is_not_written(folder: Path) -> None:
    task = tensorc_dsl.load("own.tsched", threads=1)["small"]
    (folder / "own.tsched").write_text(OWN.replace("* f32(times)", "- f32(times)"))
    assert alone(task, task.sample(0), folder / "x.tsched") is None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_schedules_of_the_examples_are_files_of_their_own(path: Path) -> None:
    for task in tensorc_dsl.load(path, threads=2).values():
        if task.target.kind != "llvm":
            continue
        text = alone(task, task.sample(0), path.parent / "best.tsched")
        assert text is not None and f"task {task.name} = " in text
