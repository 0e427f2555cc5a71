"""Formatting: the one layout, as the edits that lead to it."""

from __future__ import annotations

from difflib import SequenceMatcher

from lsprotocol import types as lsp

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.lsp.text import Text
from tensorc_dsl.source import Source
from tensorc_dsl.syntax.fmt import format_text


def formatting(text: str) -> list[lsp.TextEdit]:
    """The edits, by whole lines; none for a text that does not parse, of which the diagnostics tell."""
    try:
        after = format_text(Source("<text>", text))
    except TschedError:
        return []
    old, new = _lines(text), _lines(after)
    edits: list[lsp.TextEdit] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal":
            edits.append(lsp.TextEdit(_range(text, old, a, b), "".join(new[c:d])))
    return edits


def _lines(text: str) -> list[str]:
    """The lines with their ends. Only LF ends a line, as in the editor."""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *(lines[-1:] if lines[-1] else [])]


def _range(text: str, old: list[str], first: int, last: int) -> lsp.Range:
    if last < len(old) or text.endswith("\n") or not old:
        return lsp.Range(lsp.Position(first, 0), lsp.Position(last, 0))
    return lsp.Range(lsp.Position(first, 0), Text(Source("", text)).position(len(text)))
