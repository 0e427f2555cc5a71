"""The list of error codes, with the files that declare each and the beginning of its messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tensorc_dsl
from docs.generate.pages import FOLDER
from tensorc_dsl.faces.report.entries import plain

PACKAGE = Path(tensorc_dsl.__file__).resolve().parent
PAGES = FOLDER.parent / "errors"

_CODE = re.compile(r"[EW]\d{4}")

GROUPS: tuple[tuple[str, str], ...] = (
    ("E0199", "Syntax"),
    ("E0219", "Programs as text"),
    ("E0299", "Names, files and packages"),
    ("E0399", "Schedule steps and queries that are refused"),
    ("E0499", "Computes"),
    ("E0599", "Expanding a schedule"),
    ("E0699", "More schedule steps that are refused"),
    ("E0799", "Measuring and records"),
    ("E0869", "Programs that are not proved equal"),
    ("E0899", "Other machines"),
    ("E0999", "Files, tasks and commands"),
    ("W9999", "Warnings"),
)
"""The last code of each group, in order."""


@dataclass(frozen=True, slots=True)
class Raised:
    """One place that reports a code. `message` is empty if it consists of facts only."""

    code: str
    message: str
    file: str


def _text(node: ast.expr | None) -> str:
    """The text of a literal; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _codes_in(file: Path) -> Iterator[Raised]:
    """The calls whose first literal argument is a code, with the argument after that code."""
    text = file.read_text(encoding="utf-8")
    if _CODE.search(text) is None:  # most files: their trees need not be made
        return
    seen: set[int] = set()
    name = f"tensorc_dsl/{file.relative_to(PACKAGE).as_posix()}"
    nodes = [*ast.walk(ast.parse(text))]
    for node in nodes:
        if isinstance(node, ast.Call):
            for n, argument in enumerate(node.args):
                if isinstance(argument, ast.Constant) and _is_code(argument.value):
                    seen.add(id(argument))
                    following = node.args[n + 1] if n + 1 < len(node.args) else None
                    yield Raised(str(argument.value), _text(following), name)
    for node in nodes:
        if isinstance(node, ast.Constant) and _is_code(node.value) and id(node) not in seen:
            yield Raised(str(node.value), "", name)


def _is_code(value: object) -> bool:
    return isinstance(value, str) and _CODE.fullmatch(value) is not None


@cache
def raised() -> dict[str, list[Raised]]:
    """All codes in order, each with the places that report it."""
    out: dict[str, list[Raised]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for d in _codes_in(file):
            out.setdefault(d.code, []).append(d)
    return dict(sorted(out.items()))


def errors() -> str:
    out: list[str] = []
    title = ""
    for name, places in raised().items():
        now = next(t for last, t in GROUPS if name <= last)
        if now != title:
            out.append(f"## {now}")
        title = now
        out.append(_entry(name, places))
    return "\n\n".join(out)


def _entry(name: str, places: list[Raised]) -> str:
    messages = list(dict.fromkeys(plain(p.message) for p in places if p.message))
    files = ", ".join(f"[{f}](../../{f})" for f in dict.fromkeys(p.file for p in places))
    page = f" [Explained](../errors/{name}.md)." if (PAGES / f"{name}.md").exists() else ""
    said = "".join(f"\n- {m}" for m in messages)
    return f"### {name}\n{said}\n\nDeclared in {files}.{page}"
