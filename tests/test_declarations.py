"""Findings are declared in one way, and each says its facts: those that its texts have places for, and no others.

That every call gives these facts, and of these types, is what pyright sees.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

import pytest

import tensorc_dsl

LIBRARY = Path(tensorc_dsl.__file__).parent


@dataclass(frozen=True, slots=True)
class Declaration:
    """A function that says what facts a finding has, and the decorator above it."""

    where: str
    kind: str
    texts: tuple[str, ...]
    at: str
    facts: tuple[str, ...]
    typed: bool


def declarations() -> Iterator[Declaration]:
    for file in sorted(LIBRARY.rglob("*.py")):
        text = file.read_text("utf-8")
        if not re.search(r"@(problem|refusal)\(", text):
            continue  # parsing all of the package takes seconds, in each process of the tests
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                for d in node.decorator_list:
                    if isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id in ("problem", "refusal"):
                        yield read(f"{file.relative_to(LIBRARY)}: {node.name}", d.func.id, d, node)


def read(where: str, kind: str, d: ast.Call, node: ast.FunctionDef) -> Declaration:
    named = {k.arg: ast.literal_eval(k.value) for k in d.keywords}
    at = named.pop("at", "")
    arguments = node.args
    helps = "help" in named or len(d.args) > 3
    repair = () if helps or "repair" not in {a.arg for a in arguments.kwonlyargs} else ("{repair}",)
    texts = (*map(ast.literal_eval, d.args[1:]), *named.values(), *repair)
    typed = not arguments.args and all(a.annotation is not None for a in arguments.kwonlyargs)
    return Declaration(where, kind, texts, at, tuple(a.arg for a in arguments.kwonlyargs), typed)


def holes(texts: tuple[str, ...]) -> set[str]:
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name is not None}


def misfits(d: Declaration) -> set[str]:
    """Facts that no text has a place for, and places without a fact. What is to be underlined is told too."""
    return (holes(d.texts) | ({d.at} & set(d.facts))) ^ set(d.facts)


FOUND = tuple(declarations())


@pytest.mark.parametrize("d", FOUND, ids=lambda d: d.where)
def test_every_hole_has_a_fact_and_every_fact_a_hole(d: Declaration) -> None:
    assert not misfits(d)
    assert d.typed, "facts are given by name, and have types"


def test_a_misfit_is_found() -> None:
    text = """
@problem("E0001", "`{a}` is {b}", help="{c}")
def X(*, a: str, c: str, d: str) -> None: ...
"""
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef) and isinstance(node.decorator_list[0], ast.Call)
    assert misfits(read("", "problem", node.decorator_list[0], node)) == {"b", "d"}
    assert len(FOUND) > 300


def test_there_is_one_way() -> None:
    """A diagnostic that is put together by hand has facts that nothing checks."""
    by_hand = {
        str(file.relative_to(LIBRARY))
        for file in LIBRARY.rglob("*.py")
        if "Diagnostic" in (text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Diagnostic"
    }
    assert by_hand == {"base/diagnostic.py", "schedule/step.py"}
