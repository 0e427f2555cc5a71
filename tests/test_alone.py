"""The file that `tune` writes is run, edited and tuned by itself."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.faces.api.schedules import alone, written
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records.trial import program_key

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


@pytest.mark.corpus
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
    assert call("run", best).exit_code == 0
    # A draw without its pin is searched again.
    opened = re.sub(r"(let (?:wide|step) ~ .*) := .*", r"\1", text)
    assert opened != text
    Path("again.tsched").write_text(opened)
    again = call("tune", "again.tsched", "--trials", "2", "--records", "r.sqlite", "--output", "again.best.tsched")
    assert again.exit_code == 0, again.stderr
    assert use in Path("again.best.tsched").read_text()


HELPERS = """\
use std.ops.{gelu}
reducer most(x, y) = max(x, y) identity -inf
compute twice(A: f32[N]) -> B: f32[N] { B[i] = A[i] * 2.0 }
compute both(A: f32[M, N]) -> C: f32[M] {
    let R = gelu(A)
    C[i] = reduce most[j] R[i, j]
}
"""
MANY = """\
use helpers.{both, twice}
/// Doubles what `both` makes.
compute all(A: f32[M, N]; times: int = 1) -> C: f32[M] {
    let V = both(A)
    let W = twice(V)
    C[i] = W[i] * f32(times)
}
schedule rows for all {
    let wide ~ sample_categorical([2, 4])
    split(C.loops[0], [_, wide], partial=true)
}
task small = all(M=6, N=5, times=2) with rows
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Sources in several folders, of which some are on no path of a `use`."""
    (tmp_path / "src" / "modules").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "src" / "own.tsched").write_text(OWN)
    (tmp_path / "src" / "many.tsched").write_text(MANY)
    (tmp_path / "src" / "helpers.tsched").write_text(HELPERS)
    (tmp_path / "src" / "not-a-name.tsched").write_text(OWN)
    (tmp_path / "src" / "modules" / "listed.tsched").write_text(OWN)
    (tmp_path / "elsewhere" / "far.tsched").write_text(LIBRARY.replace("product", "small"))
    (tmp_path / "pyproject.toml").write_text('[tool.tensorc-dsl]\nmodule-paths = ["src/modules"]\n')
    return tmp_path


@pytest.mark.corpus
@pytest.mark.parametrize("place", [".", "src", "src/modules", "elsewhere", "/"])
@pytest.mark.parametrize(
    "file", ["src/own", "src/many", "src/not-a-name", "src/modules/listed", "elsewhere/far"]
)  # fmt: skip
def test_every_best_file_is_one_of_its_own_in_every_folder(
    project: Path, file: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It is checked, verified, replayed and run by itself. So are those of other folders, also outside of the project."""
    folder = tmp_path_factory.mktemp("outside") if place == "/" else project / place
    monkeypatch.chdir(folder)
    source = os.path.relpath(project / f"{file}.tsched")
    done = call("tune", source, "small", "--trials", "1", "--threads", "1", "--records", str(project / "r.sqlite"))
    assert done.exit_code == 0, done.output
    best = "small.best.tsched"
    for words in (
        ("check", best),
        ("verify", best, "small"),
        ("fmt", "--check", best),
        ("replay", best, "small", best),
    ):
        done = call(*words)
        assert done.exit_code == 0, done.output
    assert call("replay", source, "small", best).exit_code == 0
    here = tensorc_dsl.load(best, threads=1)["small"]
    there = tensorc_dsl.load(source, threads=1)["small"]
    assert here.sample(0).text == there.frozen(best).text
    assert program_key(here.program) == program_key(there.program)  # so it has the same records


def test_a_use_is_written_where_one_reaches_the_compute(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "elsewhere")
    for file, beginning in (
        ("../src/modules/listed.tsched", "use listed.{add}\n"),
        ("../src/many.tsched", "use std.ops.gelu.{gelu}\n\n/// Doubles what `both` makes.\ncompute all("),
        ("../src/own.tsched", "compute add("),
    ):
        task = tensorc_dsl.load(file, threads=1)["small"]
        text = alone(task, task.sample(0), Path("x.tsched"))
        assert text is not None and text.startswith(beginning)


def test_a_file_that_is_replaced_is_not_used(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "src")
    task = tensorc_dsl.load("own.tsched", threads=1)["small"]
    task.replay(task.sample(0)).save("own.tsched")
    again = tensorc_dsl.load("own.tsched", threads=1)["small"]
    assert again.sample(0).text == task.sample(0).text


def test_a_folder_of_an_option_is_not_relied_upon(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = OWN.replace("add", "far_add")
    compute, _, schedule = far.partition("schedule")
    (project / "elsewhere" / "far.tsched").write_text(compute)
    (project / "src" / "user.tsched").write_text(f"use far.{{far_add}}\nschedule{schedule}")
    monkeypatch.chdir(project)
    task = tensorc_dsl.load("src/user.tsched", threads=1, include=["elsewhere"])["small"]
    text = alone(task, task.sample(0), Path("x.tsched"))
    assert text is not None and "use elsewhere.far.{far_add}\n" in text
    text = alone(task, task.sample(0), Path("src/x.tsched"))
    assert text is not None and text.startswith("compute far_add(")


def test_two_computes_of_one_name_are_not_written_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that replays the schedule is written in place of the task."""
    inner = "compute add(A: f32[N]) -> B: f32[N] { B[i] = A[i] + 1.0 }\n"
    (project / "src" / "helpers.tsched").write_text(
        inner + "compute more(A: f32[N]) -> B: f32[N] { let V = add(A); B[i] = V[i] }\n"
    )
    outer = "compute add(A: f32[N]) -> B: f32[N] { let V = more(A); B[i] = V[i] * 2.0 }\n"
    end = "schedule rows for add { parallel(B.loops[0]) }\ntask small = add(N=8) with rows\n"
    (project / "src" / "two.tsched").write_text("use helpers.{more}\n" + outer + end)
    monkeypatch.chdir(project / "elsewhere")
    assert call("tune", "../src/two.tsched", "--trials", "1", "--records", "r.sqlite").exit_code == 0
    lines = Path("small.best.tsched").read_text().splitlines()
    assert lines[2] == "// tensorc-dsl replay ../src/two.tsched small small.best.tsched"
    assert lines[3].startswith("schedule rows for add")
    assert call(*lines[2].split()[2:]).exit_code == 0


@pytest.mark.parametrize("options", [("--threads", "1"), ("-I", "inner"), ()])
def test_the_command_has_the_options_of_the_search(folder: Path, options: tuple[str, ...]) -> None:
    (folder / "wide.tsched").write_text('target wide = llvm(cpu="x86-64-v2", cores=1)\n' + OWN)
    options = (*options, "--target", "wide")
    assert call("tune", "wide.tsched", "--trials", "1", "--records", "r.sqlite", *options).exit_code == 0
    command = Path("small.best.tsched").read_text().splitlines()[2].split()[2:]
    assert command[:4] == ["replay", "wide.tsched", "small", "small.best.tsched"]
    assert sorted(command[4:]) == sorted(options)
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


def test_a_kernel_of_a_text_is_saved_with_its_compute_and_one_of_a_pickle_as_its_schedule(folder: Path) -> None:
    home = tensorc_dsl.loads(OWN, threads=1)["small"]
    kernel = home.replay(home.sample(0))
    kernel.save("saved.tsched")
    assert tensorc_dsl.load("saved.tsched", threads=1)["small"].sample(0).text == home.sample(0).text
    assert home.replay("saved.tsched").trace.text == home.sample(0).text
    pickle.loads(pickle.dumps(kernel)).save("saved.tsched")
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


@pytest.mark.corpus
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_schedules_of_the_examples_are_files_of_their_own(path: Path) -> None:
    for task in tensorc_dsl.load(path, threads=2).values():
        if task.target.kind != "llvm":
            continue
        text = alone(task, task.sample(0), path.parent / "best.tsched")
        assert text is not None and f"task {task.name} = " in text
