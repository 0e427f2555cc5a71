"""No file of the working folder is executed: a file for every imported module is planted there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tensorc_dsl
from tests.isolated.modules import executed, imported, plant
from tests.started import MOMENT

FILE = """\
use std.cpu
use std.ops.{matmul}

task small = matmul(M=16, N=16, K=16)
"""

COMMANDS = (
    ("tune", "small.tsched", "small", "--trials", "2", "--records", "r.sqlite"),
    ("run", "small.tsched", "small"),
    ("replay", "small.tsched", "small", "small.best.tsched"),
    ("verify", "small.tsched", "small", "small.best.tsched"),
    ("compile", "small.tsched", "small", "--seed", "0", "--emit", "so", "--emit", "header", "-o", "out"),
    ("compile", "small.tsched", "small", "--seed", "0", "--emit", "asm", "--mcpu", "x86-64"),
    ("show", "small.tsched", "small", "--stage", "asm"),
    ("check", "small.tsched", "--expand"),
    ("sample", "small.tsched", "small"),
)

SCRIPT = f"""\
import os, sys
from pathlib import Path
sys.path.remove("")
import tensorc_dsl
{MOMENT}from tensorc_dsl.tuning.machine.baseline import Measuring
import tensorc_dsl
from tests.isolated.modules import plant
task = tensorc_dsl.load("small.tsched")["small"]
kernel = task.tune(trials=1, records="warm.sqlite")  # what the parent itself imports is loaded afterwards
measuring = Measuring(task.program, task.target, task.threads, str)
measuring.beside_numpy(measuring.first())
plant(Path(), Path(sys.argv[1]))
sys.path[:0] = ["", ".", os.getcwd()]
os.environ["PYTHONPATH"] = os.pathsep.join(["", ".", os.getcwd()])
os.environ["PYTHONSTARTUP"] = "string.py"
task.tune(trials=1, records="r.sqlite")
measuring = Measuring(task.program, task.target, task.threads, str)
measuring.beside_numpy(measuring.first())
task.measure(kernel.trace)
other = tensorc_dsl.load("small.tsched", mcpu="x86-64")["small"]
other.compile(other.sample(0))
task.export(kernel.trace, "small.so", "so")
print(os.getpid())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    (here / "small.tsched").write_text(FILE)
    return here


def run(folder: Path, *command: str, **variables: str) -> str:
    environment = os.environ | {"XDG_DATA_HOME": str(folder.parent / "data")} | variables
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.corpus("planted modules")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_execute_no_module_of_the_working_folder(folder: Path, command: tuple[str, ...]) -> None:
    best = tensorc_dsl.loads(FILE)["small"].sample(0)
    (folder / "small.best.tsched").write_text(best.text)
    log = folder.parent / "log"
    plant(folder, log)
    run(folder, str(Path(sysconfig.get_path("scripts"), "tensorc-dsl")), *command)
    assert executed(log) == []


@pytest.mark.corpus("planted modules")
def test_children_of_the_python_api_execute_no_module_of_the_working_folder(folder: Path) -> None:
    """The process itself looks where its user told it to."""
    log = folder.parent / "log"
    root = str(Path(__file__).parents[2])
    said = run(folder, sys.executable, "-c", SCRIPT, str(log), PYTHONPATH=root)
    assert {pid for _, pid in executed(log)} <= {int(said)}


def test_a_planted_module_tells(folder: Path) -> None:
    """Of the names that are planted, all would be found."""
    log = folder.parent / "log"
    plant(folder, log)
    subprocess.run([sys.executable, "-m", "tensorc_dsl"], cwd=folder, check=False, capture_output=True, timeout=60)
    assert executed(log)
    assert len(imported()) > 300
