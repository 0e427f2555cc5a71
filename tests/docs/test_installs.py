"""Whoever copies a command installs what lies here: a bare name would be fetched, and may be somebody else's package."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
OURS = "tensorc-dsl"
_PLACES = ("*.md", "docs/**/*.md", "tensorc_dsl/**/*.py", "stdlib/**/*.tsched", ".github/**/*.yml", "examples/**/*")
_COMMAND = re.compile(r"pip (?:install|wheel|download) ([^`\n\"'#]*)")


def fetched(text: str) -> list[str]:
    """What the `pip` commands in a text would fetch by name, but for this package."""
    found: list[str] = []
    for match in _COMMAND.finditer(text):
        words = re.split(r"&&|;|, then|\|", match[1])[0].split()
        found += [w for w in words if not w.startswith(("-", ".", "/", "{", "$")) and w != OURS]
    return found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("next: pip install -e reducing, then pytest reducing", ["reducing"]),
        ("pip install -e ./reducing && pytest reducing", []),
        ("`pip install tensorc-dsl` installs it", []),
        ("pip wheel --no-deps reducing   # for others", ["reducing"]),
    ],
)
def test_names_in_commands_are_seen(text: str, names: list[str]) -> None:
    assert fetched(text) == names


def test_no_text_says_to_fetch_anything_but_this_package() -> None:
    paths = [p for pattern in _PLACES for p in sorted(ROOT.glob(pattern)) if p.is_file()]
    assert len(paths) > 500
    found = {str(p.relative_to(ROOT)): names for p in paths if (names := fetched(p.read_text(errors="replace")))}
    assert found == {}


@pytest.mark.parametrize(
    ("folder", "said"),
    [(None, "./fresh"), ("a/b", "./a/b"), ("two words", "'./two words'"), ("-x", "./-x"), ("/", None)],
)
def test_a_new_package_is_installed_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None, said: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    if folder == "/":
        folder = said = str(tmp_path / "whole")
    options = [] if folder is None else [f"--folder={folder}"]
    result = CliRunner().invoke(main, ["module", "new", "fresh", *options])
    assert result.exit_code == 0, result.output
    assert f"next: pip install -e {said}, then pytest {said}\n" in result.output
    place = shlex.split(result.output.rpartition("pytest ")[2])[0]
    assert (tmp_path / place / "pyproject.toml").exists()
