"""A backend of another package: it is found by its kind, and needs no change outside its own folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.base.extensions import BACKENDS
from tests.started import MOMENT, Commands

ROOT = Path(__file__).resolve().parents[2]
TOY = Path(__file__).parent / "toy"
COMMAND = "from tensorc_dsl.faces.cli.main import main; main()"

FILE = """\
compute curve(X: f32[M, N], W: f32[N]) -> Y: f32[M, N] {
    Y[i, j] = select(X[i, j] < 0.0, exp(X[i, j]), X[i, j]) * W[j] + 1.0
}
compute sums(X: f32[M, N]) -> Y: f32[M] { Y[i] = sum[j] X[i, j] }
target c = toy(cores=1)
module tiled(b: Block) {
    let rows ~ sample_perfect_tile(b.loops[0], parts=2)
    split(b.loops[0], rows)
}
space tiles for c { tiled }
space any for toy { tiled }
task small = curve(M=6, N=10) with tiles
task same = curve(M=6, N=10) with any
task never = sums(M=6, N=10) with tiles
"""

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{TOY}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("toy.tsched").write_text(FILE, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with closing(Commands(ROOT, {**os.environ, "PYTHONPATH": f"{ROOT}:{TOY}"}, MOMENT)) as started:
        yield started


@pytest.fixture
def call(folder: Path, commands: Commands) -> Callable[..., str]:
    """What a command says, on both streams."""

    def said(*arguments: str, status: int = 0) -> str:
        variables = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "XDG_DATA_HOME")}
        return commands.says(arguments, folder, variables, status)

    return said


def test_what_the_toy_needs_outside_of_its_folder_is_nothing() -> None:
    """What there is of it is listed here; nothing but tests names it, and with its folder in reach it is there."""
    needs = {p.relative_to(TOY).as_posix() for p in TOY.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    assert needs == {
        "tensorc_toy/__init__.py",
        "tensorc_toy/backend.py",
        "tensorc_toy-1.0.dist-info/METADATA",
        "tensorc_toy-1.0.dist-info/entry_points.txt",
    }
    places = ("tensorc_dsl", "stdlib", "grammar", "docs", "bench", "campaigns", "examples")
    files = [f for place in places for f in (ROOT / place).rglob("*") if f.suffix in (".py", ".tsched", ".lark", ".md")]
    files += [
        ROOT / name for name in ("pyproject.toml", "Makefile", "hatch_build.py", "README.md", "tests/conftest.py")
    ]
    naming = [f for f in files if re.search(r"tensorc_toy|tests/backends/toy", f.read_text(encoding="utf-8"))]
    assert len(naming) == 0, naming
    assert BACKENDS.module("toy") is None
    kinds = "from tensorc_dsl.base.extensions import BACKENDS; print(*BACKENDS.names())"
    run = [sys.executable, "-c", kinds]
    assert "toy" not in subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    there = subprocess.run(run, capture_output=True, text=True, check=True, env={"PYTHONPATH": f"{ROOT}:{TOY}"})
    assert "toy" in there.stdout.split()


@pytest.mark.corpus
def test_its_kind_is_checked_like_ours(call: Callable[..., str]) -> None:
    assert call("check", "toy.tsched") == "toy.tsched: ok, 3 tasks\n"
    Path("near.tsched").write_text("target c = toi(cores=1)\nspace s for tow { }\n")
    said = call("check", "near.tsched", status=1)
    assert said.count("error[E0227]") == 2 and said.count("did you mean `toy`?") == 2
    Path("none.tsched").write_text(FILE.replace("target c = toy(cores=1)", "").replace("for c", "for toy"))
    said = call("sample", "none.tsched", "same", status=1)
    assert "error[E0558]" in said and "= help: describe one: `target mine = toy(cores=4)`" in said
    alone = subprocess.run(
        [sys.executable, "-c", COMMAND, "check", "toy.tsched"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert alone.returncode == 1 and "error[E0227]: there is no target `toy`" in alone.stderr


def test_it_lowers_prints_and_refuses(call: Callable[..., str]) -> None:
    assert call("show", "toy.tsched", "small", "--stage", "lowered").startswith("kernel small(")
    assert "lowered" not in call("show", "toy.tsched", "small", "--stage", "lowered", "--after", "help")
    shown = call("show", "toy.tsched", "small", "--stage", "c", "--seed", "3")
    assert "void kernel(void **arrays)" in shown
    assert "void kernel(void **arrays)" in call("show", "toy.tsched", "same", "--stage", "c")
    assert call("compile", "toy.tsched", "small", "--emit", "c", "--seed", "3") == shown
    assert "'llvm' is not one of ast, graph, ir, space, trace, lowered, c" in call(
        "show", "toy.tsched", "small", "--stage", "llvm", status=2
    )
    assert "'so' is not one of c" in call("compile", "toy.tsched", "small", "--emit", "so", "--seed", "3", status=2)
    assert "error[E0908]: the schedule cannot be lowered: the toy has no reductions" in call(
        "show", "toy.tsched", "never", "--stage", "c", status=1
    )
    assert "error[TOY1]" in call("show", "toy.tsched", "small", "--stage", "c", "--mcpu", "znver4", status=1)
    assert call("verify", "toy.tsched", "small") == "small: valid\n"


@pytest.mark.corpus
@needs_compiler
def test_it_tunes_replays_and_runs(call: Callable[..., str]) -> None:
    said = call("tune", "toy.tsched", "small", "--trials", "4", "--strategy", "random", "--records", "r.sqlite")
    assert "best schedule: small.best.tsched" in said
    assert "the result is right" in call("replay", "toy.tsched", "small", "small.best.tsched")
    assert "the result is right" in call("run", "toy.tsched", "small", "--records", "r.sqlite")
    assert "no valid candidate" in call("tune", "toy.tsched", "never", "--trials", "2", status=3)


def test_instructions_may_have_code_for_it(call: Callable[..., str]) -> None:
    item = (
        'intrinsic add_4\n    desc (A: f32[4], C: f32[4]) {\n        C[i] += A[i]\n    }\n    lower KIND FORM "add"\n'
    )
    for form in ("asm", "call"):
        Path("i.tsched").write_text(item.replace("KIND", "toy").replace("FORM", form))
        assert call("check", "i.tsched") == "i.tsched: ok, 0 tasks\n"
    Path("i.tsched").write_text(item.replace("KIND", "toi").replace("FORM", "call"))
    said = call("check", "i.tsched", status=1)
    assert "error[E0673]: there are no targets of kind `toi`" in said and "did you mean `toy`?" in said


@pytest.mark.corpus
def test_what_goes_wrong_in_it_is_said(folder: Path, call: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert "error[TOY2]" in call("tune", "toy.tsched", "small", status=1)
    (folder / "cc").write_text("#!/bin/sh\nexit 1\n")
    (folder / "cc").chmod(0o755)
    assert "compile error" in call("tune", "toy.tsched", "small", "--trials", "2", status=3)
    program = "import tensorc_dsl\ntask = tensorc_dsl.load('toy.tsched')['small']\ntask.replay(task.sample(0))"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=300)
    assert "TschedError: E0908: the schedule cannot be loaded: cc does not take the text" in done.stderr


@pytest.mark.corpus
@needs_compiler
def test_its_kernels_are_called_on_arrays(folder: Path) -> None:
    program = """
import numpy as np, tensorc_dsl
task = tensorc_dsl.load("toy.tsched")["small"]
kernel = task.replay(task.sample(0))
x = np.linspace(-2, 2, 60, dtype=np.float32).reshape(6, 10)
w = np.arange(10, dtype=np.float32)
np.save("y.npy", kernel(x, w))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    x = np.linspace(-2, 2, 60).reshape(6, 10)
    expected = np.where(x < 0, np.exp(x), x) * np.arange(10) + 1
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-5)
