"""Shell completion: the scripts, and the completions that they get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.cli.main import main

COMMAND = "from tensorc_dsl.faces.cli.main import main; main(prog_name='tensorc-dsl')"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_TENSORC_DSL_COMPLETE={shell}_complete" in result.stdout
    assert "%(" not in result.stdout
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], check=False, input=result.stdout, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def answers(*words: str) -> list[str]:
    """What bash is offered for the last of the words."""
    environment = {**os.environ, "_TENSORC_DSL_COMPLETE": "bash_complete", "COMP_CWORD": str(len(words))}
    environment["COMP_WORDS"] = " ".join(["tensorc-dsl", *words])
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], check=False, env=environment, capture_output=True, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_answers() -> None:
    assert answers("ch") == ["plain,check"]
    assert "plain,which" in answers("module", "wh")
    assert answers("check", "--output-format", "s") == ["plain,sarif"]
    assert answers("check", "x") == ["file,x"]
    assert answers("completion", "") == ["plain,bash", "plain,zsh", "plain,fish"]


def test_another_shell_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["completion", "ksh"]).exit_code == 2
