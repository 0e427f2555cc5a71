"""Outputs that take nothing: what was asked for and cannot be written is an error, what is only told is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bench import first_seconds
from bench.first_seconds import written
from tensorc_dsl.faces.cli.main import main
from tests.started import ALONE

FILE = """\
use std.cpu
use std.ops.{matmul}
task small = matmul(M=16, N=16, K=16)
"""
COMMAND = (sys.executable, "-c", "from tensorc_dsl.faces.cli.main import main; main(prog_name='tensorc-dsl')")
FULL = """\
error[E0903]: cannot write to standard output: no space left on device
  = help: make room, or let it go to a file on another disk
"""

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f.tsched").write_text(FILE)
    return tmp_path


def ended(folder: Path, command: str) -> tuple[int, str, str]:
    """The command in a shell: its status, and both outputs as far as they come here."""
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "data")}
    program = (ALONE if command.startswith("tune") else "") + COMMAND[2].replace("'", '"')
    line = " ".join(["exec", *(f"'{c}'" for c in (*COMMAND[:2], program))]) + f" {command}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, text=True, capture_output=True, check=False, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.corpus("outputs that fail")
@pytest.mark.parametrize(
    "command", ["check --output-format json f.tsched", "explain split", "--color always explain split", "fmt - < f.tsched",
                "sample f.tsched", "show f.tsched small --stage ir", "explain --list", "completion bash"]
)  # fmt: skip
def test_a_full_standard_output_is_an_error(folder: Path, command: str) -> None:
    status, _, err = ended(folder, f"{command} > /dev/full")
    assert (status, click.unstyle(err)) == (1, FULL)


@pytest.mark.corpus("outputs that fail")
def test_a_search_is_kept_where_its_table_cannot_be_written(folder: Path) -> None:
    status, _, err = ended(folder, "tune f.tsched --trials 1 --threads 1 > /dev/full")
    assert status == 1
    assert err.endswith(FULL) and "bug" not in err
    assert (folder / "small.best.tsched").read_text().startswith("// small: ")


@pytest.mark.corpus("outputs that fail")
def test_a_full_standard_error_ends_nothing(folder: Path) -> None:
    status, out, _ = ended(folder, "tune f.tsched --trials 1 --threads 1 2> /dev/full")
    assert status == 0
    assert "best schedule: small.best.tsched" in out


@pytest.mark.corpus("outputs that fail")
@pytest.mark.parametrize("command", ["check f.tsched", "explain split", "sample f.tsched", "tune f.tsched --trials 1"])
def test_outputs_may_be_closed(folder: Path, command: str) -> None:
    assert ended(folder, f"{command} >&-")[0] == 0
    assert ended(folder, f"{command} 2>&-")[0] == 0


@pytest.mark.parametrize("arguments", [(), ("module",)])
def test_a_command_alone_shows_its_help_in_lines(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 2
    assert result.stderr.count("\n") > 5 and "\\u{" not in result.stderr


@pytest.mark.corpus
@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_overwrite_gets_lines(folder: Path, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    python, option, program = first_seconds.COMMAND
    monkeypatch.setattr(first_seconds, "COMMAND", (python, option, ALONE + program))
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "data")}
    arguments = ("tune", "f.tsched", "--trials", "2", "--threads", "1", "--no-shipped", "--strategy", "random")
    chunks = written(arguments, columns=40, seconds=300, folder=folder, environment=environment, terminal=term)
    text = "".join(t for _, t in chunks)
    assert "[2/2] best " in text and "\x1b" not in text
