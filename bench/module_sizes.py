"""Counts the lines of modules: `python -m bench.module_sizes [PATH…]`, of folders of the library or files anywhere.

Lines of `.tsched` that are neither blank nor a comment count, by file and in sum.
"""

from __future__ import annotations

import sys
from pathlib import Path

STDLIB = Path(__file__).resolve().parent.parent / "stdlib"


def code_lines(text: str) -> int:
    """The number of lines that are neither blank nor only a comment."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def main() -> None:
    total = 0
    for given in sys.argv[1:] or ["cpu"]:
        folder = STDLIB / given
        for file in sorted(folder.rglob("*.tsched")) if folder.is_dir() else [Path(given)]:
            lines = code_lines(file.read_text(encoding="utf-8"))
            total += lines
            print(f"{lines:5}  {(file.relative_to(STDLIB) if folder.is_dir() else file).as_posix()}")
    print(f"{total:5}  in sum")


if __name__ == "__main__":
    main()
