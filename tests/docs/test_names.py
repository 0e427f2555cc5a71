"""The names on pages exist: codes, commands, options, targets of make, and functions in examples of the grammar."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import click
import pytest

from docs.generate.errors import raised
from docs.generate.grammar import syntax
from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.names import FUNCTIONS
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import walk
from tests.docs.pages import fences

ROOT = Path(__file__).resolve().parents[2]
# Decisions and changes speak of what was, too.
PAGES = [
    p
    for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "decisions" not in p.parts
]
ITEMS = "compute reducer intrinsic target module space schedule task use program".split()


@cache
def codes() -> set[str]:
    """Those that are declared."""
    return set(raised())


def options(command: click.Command) -> set[str]:
    """Every option of a command and of those in it."""
    context = click.Context(command)
    names = command.list_commands(context) if isinstance(command, click.Group) else []
    inner = [command.get_command(context, n) for n in names] if isinstance(command, click.Group) else []
    own = {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")}
    return own.union({"--help"}, *(options(c) for c in inner if c is not None))


def inline(page: str) -> list[str]:
    """The inline code of a page, what stands in fences left out."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


@cache
def of_the_repository() -> tuple[set[str], set[str], set[str]]:
    """The commands, the targets of make, and the options. Each page asks."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    scripts = "".join(p.read_text(encoding="utf-8") for f in ("bench", "campaigns") for p in (ROOT / f).rglob("*.py"))
    scripts += (ROOT / "tensorc_dsl" / "backend" / "llvm" / "ahead" / "runner.c").read_text(encoding="utf-8")
    others = {
        "--accept",
        *re.findall(r'"(--[a-z-]+)"', scripts),
    }  # of tests/conftest.py, of what make runs, and of runners
    return set(main.list_commands(click.Context(main))), targets, options(main) | others


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_a_page_names_exists(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert set(re.findall(r"\b[EW]0\d{3}\b", page)) <= codes()
    commands, targets, known = of_the_repository()
    said = [words for code in inline(page) for words in re.findall(r"^tensorc-dsl ([a-z]+)", code)]
    assert set(said) <= commands
    assert {t for code in inline(page) for t in re.findall(r"^make ([a-z]+)", code)} <= targets
    ours = (code for code in inline(page) if code.startswith("--") or code.split()[0] in {"tensorc-dsl", *commands})
    named = {o for code in ours for o in re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", code)}
    assert named <= known


def examples() -> list[str]:
    """The examples in the comments of the grammar: paragraphs, and words in front of a colon, that begin as an item does."""
    page = syntax()
    found = [*(f.text for f in fences(page)), *re.findall(r"^`([^`]+)`: ", page, re.MULTILINE)]
    return [text for text in found if text.split()[0] in ITEMS and "…" not in text]


@pytest.mark.parametrize("text", examples(), ids=lambda t: t.split("\n")[0])
def test_an_example_of_the_grammar_is_in_the_language(text: str) -> None:
    known = {*FUNCTIONS, *DTYPES}
    for item in parse(Source("example", text)).items:
        for node in walk(item):
            match node:
                case tree.CallExpr(function=tree.Name(id=name)) if isinstance(item, tree.ComputeDef | tree.ReducerDef):
                    assert name in known
                case _:
                    pass


def test_the_examples_of_the_grammar_are_found() -> None:
    assert {t.split()[0] for t in examples()} >= {"compute", "reducer", "intrinsic", "task", "program"}
