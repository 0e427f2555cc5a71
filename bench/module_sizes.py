"""Counts the lines of the library's modules: `python -m bench.module_sizes [FOLDER…]`.

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
    for folder in sys.argv[1:] or ["cpu"]:
        for file in sorted((STDLIB / folder).rglob("*.tsched")):
            lines = code_lines(file.read_text(encoding="utf-8"))
            total += lines
            print(f"{lines:5}  {file.relative_to(STDLIB).as_posix()}")
    print(f"{total:5}  in sum")


if __name__ == "__main__":
    main()
