"""The names in scope at a place of an incomplete text, and the receiver of a query there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorc_dsl.base.source import Span
from tensorc_dsl.check.kinds import Kind, Listener
from tensorc_dsl.check.positions import listen
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.cursor import WORDS, Cursor
from tensorc_dsl.lsp.parts import Piece, read_part
from tensorc_dsl.syntax import tree as t

HERE = "zz_the_name_being_written"
"""Stands for the name at the cursor; no file has it."""


@dataclass(slots=True)
class Around(Listener):
    """What is known of the place where HERE stands; None and no names if the place cannot be read."""

    names: dict[str, Kind | None] = field(default_factory=dict[str, "Kind | None"])
    of: Kind | None = None
    """The kind of the value before the point in front of it."""
    _is_seen: bool = False

    def named(self, at: Span, name: str, places: tuple[Span, ...], kind: Kind) -> None:
        # What is bound further below does not hold here.
        if name != HERE and not self._is_seen:
            self.names[name] = kind

    def unknown(self, at: Span, scope: Iterable[str]) -> None:
        if at.text == HERE:
            self._is_seen = True
            self.names = {name: self.names.get(name) for name in scope}

    def part(self, at: Span, kind: Kind) -> None:
        if at.text == HERE:
            self.of = kind


def around(analysis: Analysis, piece: Piece, at: Cursor, offset: int) -> Around:
    """What is known at an offset of a piece, in which a name may be half written."""
    found = Around()
    for text in _texts(piece.part.text, at, offset):
        again = read_part(piece.part.name, text)
        for item in again.items:
            if isinstance(item, t.ModuleDef | t.SpaceDef | t.ScheduleDef) and HERE in item.span.text:
                listen(analysis.checked, item, found)
                return found
    return found


def _texts(text: str, at: Cursor, offset: int) -> Iterable[str]:
    """The text with a name at the cursor: without the rest of the line, its brackets closed; whole; with a body."""
    start, end = offset - len(at.prefix), offset
    while end < len(text) and text[end] in WORDS:
        end += 1
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    rest = text[stop:] if stop >= 0 else ""
    yield f"{text[:start]}{HERE}{at.closing(line)}{rest}"
    yield f"{text[:start]}{HERE}{text[end:]}"
    yield f"{text[:start]}{HERE}{at.closing(line)} {{ }}{rest}"
