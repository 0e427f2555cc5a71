"""Makes text safe for terminals: characters that move the cursor, are invisible or change direction are spelled out.

Names, comments and the output of other programs are foreign input. An invisible character is written as the
language writes it in strings, `\\u{1B}`; letters, combining marks and signs of all languages are unchanged.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode's categories of control characters, format characters such as changes of direction, surrogates, and line ends that
terminals do not know."""

_TAB = 8
_UNUSUAL = re.compile(r"[^\n\t -~]")
_BREAKS = re.compile(r"[\n\t]")
_LEADS = range(0x1160, 0x1200)
"""The vowels and finals of Korean syllables, which share the cell of the first letter."""


def visible(text: str) -> str:
    """The text with invisible characters spelled out, except line ends and tabs."""
    return _UNUSUAL.sub(_of_match, text)


def visible_line(text: str) -> str:
    """As `visible`, on one line: line ends and tabs are spelled out too. For names, which could forge lines otherwise."""
    return _BREAKS.sub(_spelled, visible(text))


def _of_match(m: re.Match[str]) -> str:
    return _spelled(m) if unicodedata.category(m[0]) in _HIDDEN else m[0]


def _spelled(m: re.Match[str]) -> str:
    return f"\\u{{{ord(m[0]):X}}}"


def columns(text: str, start: int = 0) -> int:
    """The number of terminal cells of a line that begins in the cell `start`; a tab ends at a multiple of eight."""
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
