"""What the README shows is what the software does: its file, its commands, what they print, its Python."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tensorc_dsl.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def sessions(block: str) -> list[tuple[str, str]]:
    """Each command with what it prints; a line `…` stands for any lines, no line at all for whatever comes."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts[1:])]


def pattern(output: str) -> str:
    lines = [r"(?:.*\n)*" if line == "…\n" else re.escape(line) for line in output.splitlines(keepends=True)]
    return "".join(lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the README's file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (example,) = fenced("tsched")
    assert example.count("\n") <= 12
    (tmp_path / "first.tsched").write_text(example, encoding="utf-8")
    return tmp_path


def test_the_commands_print_what_is_shown(folder: Path) -> None:
    (block,) = fenced("console")
    shown = sessions(block)
    assert [shlex.split(command)[1] for command, _ in shown] == ["check", "sample", "show", "tune", "replay"]
    for command, output in shown:
        program, *arguments = shlex.split(command)
        assert program == "tensorc-dsl"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, f"{command}\n{result.output}"
        assert not output or re.fullmatch(pattern(output), result.stdout), f"{command}\n{result.stdout}"


def test_the_python_runs(folder: Path) -> None:
    (code,) = fenced("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "small.tsched").read_text(encoding="utf-8").startswith("schedule tiled for matmul {")


def test_the_commands_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", "".join(fenced("sh")) + "".join(re.findall(r"`make [a-z]+`", README))))
    assert named >= {"demo", "test"}
    assert named <= targets


def test_every_command_is_named() -> None:
    named = set(re.findall(r"^\| `([a-z]+) F", README, re.MULTILINE))
    assert named == set(main.list_commands(click.Context(main)))


def test_every_primitive_is_named() -> None:
    listed = README.partition("\nPrimitives: ")[2].partition(". ")[0]
    files = (ROOT / "tensorc_dsl" / "schedule" / "primitives").glob("[!_]*.py")
    names = {name for f in files for name in re.findall(r"^@primitive\(.*?\)\ndef (\w+)", f.read_text(), re.M | re.S)}
    assert set(re.findall(r"`(\w+)`", listed)) == names


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target
