"""Tables, code and fences in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def code(text: str) -> str:
    return f"`{text}`"


def fence(text: str) -> str:
    """Text in a fence that no test runs."""
    return f"```text\n{text}\n```"
