"""The layers of the package in the order of their imports, each as its `__init__` describes it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "tensorc_dsl"


def names() -> list[str]:
    """The layers that import-linter holds, from the top, each before the layers inside it, as `tuning.search`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    inside = {c["containers"][0]: c["layers"] for c in settings["contracts"] if c["type"] == "layers"}

    def of(container: str) -> list[str]:
        room = container.partition(".")[2]
        out: list[str] = []
        for name in (name.strip() for line in inside.get(container, ()) for name in line.split("|")):
            out += [f"{room}.{name}" if room else name, *of(f"{container}.{name}")]
        return out

    return of(PACKAGE.name)


def layers() -> str:
    """A list: what a layer contains, and what it must not. Of a module that is a layer only the first sentence is taken."""
    rows: list[str] = []
    for name in names():
        folder = PACKAGE / name.replace(".", "/")
        file = folder / "__init__.py" if (folder / "__init__.py").is_file() else folder.with_suffix(".py")
        first, _, rest = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n\n")
        limits = " ".join(rest.split()) if folder.is_dir() else ""
        rows.append(
            f"- [`{name}`](../{file.relative_to(ROOT).as_posix()}): {' '.join(first.split())} {limits}".rstrip()
        )
    return "\n".join(rows)
