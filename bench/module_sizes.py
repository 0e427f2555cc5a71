"""Counts the lines of modules: `python -m bench.module_sizes [PATH…]`, of folders of the library or files anywhere.

Lines of `.tsched` that are neither blank nor a comment count, by file and in sum. `--beside OTHER FILE` counts those of two
files from the first instruction to the end of the modules, and how many of them are equal, in their order.
"""

from __future__ import annotations

import sys
from difflib import SequenceMatcher
from pathlib import Path

STDLIB = Path(__file__).resolve().parent.parent / "stdlib"


def code_lines(text: str) -> int:
    """The number of lines that are neither blank nor only a comment."""
    return len(_code(text))


def _code(text: str) -> list[str]:
    return [x for line in text.splitlines() if (x := line.strip()) and not x.startswith("//")]


def modules_of(text: str) -> str:
    """What a file has from the first instruction to the end of the modules."""
    return text[text.index("intrinsic") : text.index("space")]


def equal_lines(one: str, other: str) -> int:
    """How many lines of code are in both, in one order."""
    matched = SequenceMatcher(None, _code(one), _code(other), autojunk=False).get_matching_blocks()
    return sum(m.size for m in matched)


def main() -> None:
    if sys.argv[1:2] == ["--beside"]:
        one, other = (modules_of(Path(given).read_text(encoding="utf-8")) for given in sys.argv[2:4])
        print(f"{code_lines(one)} and {code_lines(other)} lines, {equal_lines(one, other)} of them equal")
        return
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
