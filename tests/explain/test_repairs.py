"""Every finding has a repair: its declaration has one, or each place that makes it passes one along."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tensorc_dsl

PACKAGE = Path(tensorc_dsl.__file__).resolve().parent
BAD = Path(__file__).resolve().parents[1] / "bad"
_HELP = {"problem": 3, "refusal": 2}
"""The position of the repair among the arguments of each kind of declaration."""


@cache
def modules() -> dict[str, list[ast.AST]]:
    """The modules of the package by name, as their functions, imports and calls: a walk of all trees takes a second."""
    found: dict[str, list[ast.AST]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = [
            node
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef | ast.ImportFrom | ast.Call)
        ]
    return found


def without_repair(kind: str) -> Iterator[tuple[str, str]]:
    """The declarations of a kind that have no repair, as their module and their name."""
    for name, nodes in modules().items():
        for node in nodes:
            if not isinstance(node, ast.FunctionDef):
                continue
            for d in node.decorator_list:
                if isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id == kind:
                    told = any(k.arg == "help" for k in d.keywords) or any(
                        a.arg == "repair" for a in node.args.kwonlyargs
                    )
                    if len(d.args) <= _HELP[kind] and not told:
                        yield name, node.name


@cache
def made() -> dict[tuple[str, str], list[tuple[str, ast.Call]]]:
    """The calls that make a finding, by the module and the name of its declaration, with their places.

    Also those of `fail(FINDING, span, notes, …)`, as calls of the finding.
    """
    found: dict[tuple[str, str], list[tuple[str, ast.Call]]] = {}
    for own, nodes in modules().items():
        imported = {
            a.asname or a.name: (node.module or "", a.name)
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for a in node.names
        }

        def meant(
            e: ast.expr, own: str = own, imported: dict[str, tuple[str, str]] = imported
        ) -> tuple[str, str] | None:
            match e:
                case ast.Name(id=name):
                    return imported.get(name, (own, name))
                case ast.Attribute(value=ast.Name(id=module), attr=name) if module in imported:
                    return ".".join(imported[module]), name
                case _:
                    return None

        for node in nodes:
            if isinstance(node, ast.Call):
                place = f"{own}:{node.lineno}"
                if (name := meant(node.func)) is not None:
                    found.setdefault(name, []).append((place, node))
                if node.args and (name := meant(node.args[0])) is not None:
                    inner = ast.Call(node.args[0], node.args[1:], node.keywords)
                    found.setdefault(name, []).append((place, inner))
    return found


def test_every_refusal_has_a_repair() -> None:
    assert not list(without_repair("refusal"))


def test_every_finding_has_a_repair() -> None:
    lacking = [
        f"{declaration[1]} at {place}"
        for declaration in without_repair("problem")
        for place, call in made().get(declaration, ())
        if len(call.args) < 2 and not any(k.arg == "notes" for k in call.keywords)
    ]
    assert not lacking, "\n".join(lacking)


@pytest.mark.parametrize("file", sorted(BAD.glob("*.expected")), ids=lambda p: p.stem)
def test_every_message_shows_a_repair(file: Path) -> None:
    found = re.split(r"(?m)^(?=(?:error|warning)\[)", file.read_text(encoding="utf-8"))
    lacking = [text for text in found if text.startswith(("error[", "warning[")) and " = help: " not in text]
    assert not lacking, "\n".join(lacking)
