"""The README names existing things. Its examples are tested with those of the other pages, in tests/docs."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.syntax.fmt import format_text
from tensorc_dsl.syntax.parse import parse
from tests.docs.pages import Fence, fences, sessions

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[Fence]:
    return [f for f in fences(README) if f.language == language]


def test_the_first_example_is_short_and_takes_a_file_all_the_way() -> None:
    (example,) = fenced("tsched")
    assert example.file_name == "first.tsched"
    assert sum(map(bool, example.text.splitlines())) <= 11
    assert format_text(Source("first.tsched", example.text)) == example.text
    (console,) = fenced("console")
    shown = [shlex.split(session.command)[1] for session in sessions(console)]
    assert shown == ["check", "sample", "show", "tune", "replay"]


def test_the_commands_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(
        re.findall(
            r"\bmake ([a-z]+)\b", "".join(f.text for f in fenced("sh")) + "".join(re.findall(r"`make [a-z]+`", README))
        )
    )
    assert named >= {"demo", "test"}
    assert named <= targets


def test_what_is_new_is_of_this_version_and_limits_and_a_start_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    headings = re.findall(r"^## (.*)$", README, re.MULTILINE)
    minor = ".".join(project["version"].split(".")[:2])
    assert {"Where to start", f"What is new in {minor}", "Results", "What it needs, and its limits"} <= set(headings)
    installs = set(re.findall(r"pip install '?\.\[([a-z,]+)\]", README))
    assert {extra for said in installs for extra in said.split(",")} <= set(project["optional-dependencies"])


def test_every_command_is_named() -> None:
    listed = README.partition("\n| command | does |\n")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `([a-z]+) ", listed, re.MULTILINE))
    assert named == set(main.list_commands(click.Context(main)))


def snippets() -> list[str]:
    """The first column of the table of the language, what is left out in it filled in."""
    table = README.partition("\n| you write | it means |\n")[2].partition("\n\n")[0]
    cells = (line.removeprefix("| ").partition(" | ")[0] for line in table.splitlines()[1:])
    codes = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    filled = (re.sub(r"^…", "let y", re.sub(r"~ …", "~ f()", c)).replace("…", "") for c in codes)
    return list(filled)


@pytest.mark.parametrize("snippet", snippets())
def test_what_the_table_of_the_language_shows_is_in_the_language(snippet: str) -> None:
    wraps = ("{}", "compute c(A: f32[M]) -> Y: f32[M] {{ {} }}", "schedule s for c {{ {} }}")
    assert any(parses(wrap.format(snippet)) for wrap in wraps)


def parses(text: str) -> bool:
    try:
        return bool(parse(Source("table", text)).items)
    except TschedError:
        return False


def test_every_primitive_is_named() -> None:
    listed = README.partition("<!-- generated: primitive-names -->")[2].partition("<!-- end")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(PRIMITIVES)
