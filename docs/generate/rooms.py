"""The rooms of the package in the order of their imports, each as its `__init__` describes it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "tensorc_dsl"


def layers() -> list[str]:
    """The layers that import-linter holds, from the top; those that stand beside each other are one line."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return next(c["layers"] for c in settings["contracts"] if c["type"] == "layers")


def rooms() -> str:
    """A table: what is in a room, and what may not be. A module that is a layer has its first sentence only."""
    rows = ["| room | holds | rule |", "|---|---|---|"]
    for name in (n.strip() for line in layers() for n in line.split("|")):
        folder = PACKAGE / name
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        first, _, rest = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n\n")
        limits = " ".join(rest.split()) if folder.is_dir() else ""
        rows.append(f"| [`{name}`](../{file.relative_to(ROOT).as_posix()}) | {' '.join(first.split())} | {limits} |")
    return "\n".join(rows)
