"""Text as a terminal may have it: what would move its cursor, hide or turn text stands spelled out.

Names, comments and what other programs said come from strangers. A character that shows nothing by itself is written as the
language writes it in strings, `\\u{1B}`; letters, marks and signs of all languages stay.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode's categories of controls, of what acts on its neighbours such as the turns of writing, of halves of characters,
and of line ends that terminals do not know."""

_TAB = 8
_UNUSUAL = re.compile(r"[^\n\t -~]")
_BREAKS = re.compile(r"[\n\t]")
_LEADS = range(0x1160, 0x1200)
"""The vowels and ends of a Korean syllable: they stand in the cell of its first letter."""


def visible(text: str) -> str:
    """The text with everything that shows nothing spelled out, but for line ends and tabs."""
    return _UNUSUAL.sub(_of_match, text)


def visible_line(text: str) -> str:
    """As `visible`, in one line: line ends and tabs are spelled out too. For names, which could else forge lines."""
    return _BREAKS.sub(_spelled, visible(text))


def _of_match(m: re.Match[str]) -> str:
    return _spelled(m) if unicodedata.category(m[0]) in _HIDDEN else m[0]


def _spelled(m: re.Match[str]) -> str:
    return f"\\u{{{ord(m[0]):X}}}"


def columns(text: str, start: int = 0) -> int:
    """The cells of a terminal that a line takes which begins in the cell `start`; a tab ends at a multiple of eight."""
    if text.isascii() and "\t" not in text:
        return len(text)
    at = start
    for ch in text:
        at += _TAB - at % _TAB if ch == "\t" else _cells(ch)
    return at - start


def _cells(ch: str) -> int:
    if unicodedata.category(ch) in ("Mn", "Me") or ord(ch) in _LEADS:
        return 0
    return 2 if unicodedata.east_asian_width(ch) in ("W", "F") else 1
