"""Formatting: the one layout, as the edits that lead to it.

A text is formatted item by item, and the layout of an item is kept: after an edit only the items that changed are formatted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.lsp.text import Text
from tensorc_dsl.syntax.fmt import apart, format_read, format_text
from tensorc_dsl.syntax.parse import item_starts, read

KEPT = 8192
"""The number of parts of texts of which the layout is kept."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a text, from its first line on. `after` is its layout, with the empty line above it if there is one."""

    first: int
    before: str
    after: str


def formatting(text: str, within: lsp.Range | None = None) -> list[lsp.TextEdit]:
    """The edits, by whole lines, or those that touch lines of a range; none for a text that does not parse, of which the
    diagnostics tell."""
    edits: list[lsp.TextEdit] = []
    for part in _parts(text) or _whole(text):
        if part.before != part.after:
            edits += _edits(text, part)
    return edits if within is None else [e for e in edits if _touches(e.range, within)]


def _whole(text: str) -> list[_Part]:
    """The text as one part; none if it does not parse."""
    try:
        return [_Part(0, text, format_text(Source("<text>", text)))]
    except TschedError:
        return []


def _parts(text: str) -> list[_Part]:
    """The items of a text, each with the comments above it; none if one of them does not parse by itself."""
    out: list[_Part] = []
    line, last = 0, ""
    for before in _cut(text):
        found = _layout(before)
        if found is None:
            return []
        kind, final, after = found
        blank = bool(last) and (apart(last, kind) or not before.partition("\n")[0].strip())
        out.append(_Part(line, before, f"\n{after}" if blank else after))
        line, last = line + before.count("\n"), final
    return out


def _cut(text: str) -> Iterator[str]:
    """The texts of the items. The lines above an item that are empty or comments belong to it."""
    lines = _lines(text)
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    number = {end: n for n, end in enumerate(ends)}
    begin = 0
    for start in item_starts(text):
        n = number.get(start, 0)
        while n > 0 and _is_between(lines[n - 1]):
            n -= 1
        if ends[n] > begin:
            yield text[begin : ends[n]]
            begin = ends[n]
    yield text[begin:]


def _is_between(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("//")


@lru_cache(maxsize=KEPT)
def _layout(text: str) -> tuple[str, str, str] | None:
    """The kinds of the first and of the last item of a text, and its layout; None if it does not parse, or has no item."""
    try:
        found = read(Source("<text>", text))
    except TschedError:
        return None
    kinds = [item.data for item in found.words.children if item is not None and not isinstance(item, str)]
    return (kinds[0], kinds[-1], format_read(found)) if kinds else None


def _edits(text: str, part: _Part) -> Iterator[lsp.TextEdit]:
    """The edits of one part."""
    old, new = _lines(part.before), _lines(part.after)
    # Lines that only change are edits of their own, so that one of them can be formatted alone. Most change in blanks.
    before, then = (["".join(x.split()) for x in lines] for lines in (old, new))
    for _, a, b, c, d in SequenceMatcher(None, before, then).get_opcodes():
        parts = [(n, n + 1, n - a + c, n - a + c + 1) for n in range(a, b)] if b - a == d - c else [(a, b, c, d)]
        changed = [part for part in parts if old[part[0] : part[1]] != new[part[2] : part[3]]]
        for a, b, c, d in changed:
            yield lsp.TextEdit(_range(text, part, old, a, b), "".join(new[c:d]))


def _touches(edit: lsp.Range, within: lsp.Range) -> bool:
    """Whether an edit changes a line of the range, whose last one counts if something of it is chosen."""
    last = within.end.line - (within.end.character == 0 and within.end.line > within.start.line)
    return edit.start.line <= last and within.start.line < max(edit.end.line, edit.start.line + 1)


def _lines(text: str) -> list[str]:
    """The lines with their ends. Only LF ends a line, as in the editor."""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *(lines[-1:] if lines[-1] else [])]


def _range(text: str, part: _Part, old: list[str], first: int, last: int) -> lsp.Range:
    start = lsp.Position(part.first + first, 0)
    if last < len(old) or part.before.endswith("\n") or not old:
        return lsp.Range(start, lsp.Position(part.first + last, 0))
    return lsp.Range(start, Text(Source("", text)).position(len(text)))
