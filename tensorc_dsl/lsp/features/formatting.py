"""Formatting: the one layout, as the edits that lead to it."""

from __future__ import annotations

from difflib import SequenceMatcher

from lsprotocol import types as lsp

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.lsp.text import Text
from tensorc_dsl.source import Source
from tensorc_dsl.syntax.fmt import format_text


def formatting(text: str, within: lsp.Range | None = None) -> list[lsp.TextEdit]:
    """The edits, by whole lines, or those that touch lines of a range; none for a text that does not parse, of which the
    diagnostics tell."""
    try:
        after = format_text(Source("<text>", text))
    except TschedError:
        return []
    old, new = _lines(text), _lines(after)
    edits: list[lsp.TextEdit] = []
    # Lines that only change are edits of their own, so that one of them can be formatted alone. Most change in blanks.
    before, then = (["".join(x.split()) for x in lines] for lines in (old, new))
    same = [("equal", 0, len(old), 0, len(new))] if before == then else None
    for _, a, b, c, d in same or SequenceMatcher(None, before, then).get_opcodes():
        parts = [(n, n + 1, n - a + c, n - a + c + 1) for n in range(a, b)] if b - a == d - c else [(a, b, c, d)]
        changed = [part for part in parts if old[part[0] : part[1]] != new[part[2] : part[3]]]
        edits += (lsp.TextEdit(_range(text, old, a, b), "".join(new[c:d])) for a, b, c, d in changed)
    return edits if within is None else [e for e in edits if _touches(e.range, within)]


def _touches(edit: lsp.Range, within: lsp.Range) -> bool:
    """Whether an edit changes a line of the range, whose last one counts if something of it is chosen."""
    last = within.end.line - (within.end.character == 0 and within.end.line > within.start.line)
    return edit.start.line <= last and within.start.line < max(edit.end.line, edit.start.line + 1)


def _lines(text: str) -> list[str]:
    """The lines with their ends. Only LF ends a line, as in the editor."""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *(lines[-1:] if lines[-1] else [])]


def _range(text: str, old: list[str], first: int, last: int) -> lsp.Range:
    if last < len(old) or text.endswith("\n") or not old:
        return lsp.Range(lsp.Position(first, 0), lsp.Position(last, 0))
    return lsp.Range(lsp.Position(first, 0), Text(Source("", text)).position(len(text)))
