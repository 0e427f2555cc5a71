"""A backend of another package for GPUs: the library's rules schedule for it, and nothing outside its folder changes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.started import MOMENT, Commands

ROOT = Path(__file__).resolve().parents[2]
TOY = Path(__file__).parent / "toy_gpu"

FILE = """\
use std.gpu.bind
use std.gpu.tiling
use std.ops.{matmul}
target g = toy_gpu(cores=4, threads=1024, registers=65536, shared_memory=32768)
space tiles for g { multi_level_tiling; auto_bind }
task small = matmul(M=64, N=64, K=32) with tiles
"""


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with closing(Commands(ROOT, {**os.environ, "PYTHONPATH": f"{ROOT}:{TOY}"}, MOMENT)) as started:
        yield started


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> Callable[..., str]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{TOY}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("toy.tsched").write_text(FILE, encoding="utf-8")

    def said(*arguments: str, status: int = 0) -> str:
        variables = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "XDG_DATA_HOME")}
        return commands.says(arguments, tmp_path, variables, status)

    return said


def test_nothing_outside_of_its_folder_names_it() -> None:
    places = ("tensorc_dsl", "stdlib", "grammar", "docs", "bench", "campaigns", "examples")
    files = [f for place in places for f in (ROOT / place).rglob("*") if f.suffix in (".py", ".tsched", ".lark", ".md")]
    assert [f for f in files if re.search(r"toy_gpu", f.read_text(encoding="utf-8"))] == []


def test_the_rules_for_gpus_schedule_for_it(call: Callable[..., str]) -> None:
    assert call("check", "toy.tsched") == "toy.tsched: ok, 1 task\n"
    shown = call("show", "toy.tsched", "small", "--stage", "toy", "--seed", "3")
    assert re.search(r"^kernel 0: block\.x \d+, thread\.x \d+\n", shown, re.MULTILINE)
    assert call("compile", "toy.tsched", "small", "--emit", "toy", "--seed", "3") == shown
    assert call("verify", "toy.tsched", "small") == "small: valid\n"
    assert "error[TOY4]: there is no toy GPU here" in call("tune", "toy.tsched", "small", status=1)


def test_its_targets_say_what_it_asks_for(call: Callable[..., str]) -> None:
    Path("toy.tsched").write_text(FILE.replace(", shared_memory=32768", ""))
    said = call("check", "toy.tsched", status=1)
    assert "error[" in said and "`shared_memory`" in said


def test_kernels_are_kept_apart_for_it(call: Callable[..., str]) -> None:
    """What passes from one grid to another outlives a block, whatever the kind of the GPU."""
    stages = "compute f(A: f32[N]) -> B: f32[N] { let T[i] = A[i] * 2.0; B[i] = T[i] + T[i] }\n"
    rules = """
module shared(b: Block) {
    if len(b.consumers) > 0 { set_scope(b.writes[0], "shared") }
    bind(b.loops[0], "block.x")
}
space s for g { shared }
task t = f(N=8) with s
"""
    Path("apart.tsched").write_text(stages + FILE.splitlines()[3] + rules)
    said = call("show", "apart.tsched", "t", "--stage", "toy", status=1)
    assert "error[E0641]" in said and "`T`" in said


def test_its_instructions_have_code_of_its_own(call: Callable[..., str]) -> None:
    item = (
        "intrinsic add_4\n    desc (A: f32[4], C: f32[4]) {\n        C[i] += A[i]\n    }\n    lower toy_gpu asm CODE\n"
    )
    Path("i.tsched").write_text(item.replace("CODE", '"toy.add"'))
    assert call("check", "i.tsched") == "i.tsched: ok, 0 tasks\n"
    Path("i.tsched").write_text(item.replace("CODE", '"add"'))
    assert "error[TOY3]: `add` is no operation of the toy" in call("check", "i.tsched", status=1)
    Path("i.tsched").write_text(item.replace("asm CODE", 'call "toy.add"'))
    assert "error[E0673]" in call("check", "i.tsched", status=1)
