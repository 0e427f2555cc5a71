"""Texts of open documents, and positions in them as an editor counts."""

from __future__ import annotations

from functools import cached_property

from lsprotocol import types as lsp

from tensorc_dsl.base.source import Source

_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def normal(text: str) -> str:
    """The text with LF at the end of each line, and with characters that UTF-8 can hold. Lines and columns stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    try:
        text.encode()
    except UnicodeEncodeError:
        # Pairs of surrogates, as JSON may spell one character, become that character; single ones cannot be stored.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class Text:
    """A text whose positions are counted in units of an encoding: by default UTF-16, in which 🙂 has two."""

    def __init__(self, source: Source, encoding: str = "utf-16") -> None:
        self.source = source
        self.encoding = encoding
        self._codec, self._unit = _CODECS.get(encoding, _CODECS["utf-16"])

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.source.text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts[:-1]

    def position(self, offset: int) -> lsp.Position:
        """The position of a character; behind the end, that of the end."""
        offset = min(max(0, offset), len(self.source.text))
        line, column = self.source.line_column(offset)
        before = self.source.text[offset - column + 1 : offset]
        units = column - 1 if before.isascii() else len(before.encode(self._codec)) // self._unit
        return lsp.Position(line - 1, units)

    def offset(self, position: lsp.Position) -> int:
        """The character at a position; that of the line's end behind it, and that of the text's end below it."""
        if position.line >= len(self._starts):
            return len(self.source.text)
        line, start = self.source.line(position.line + 1), self._starts[position.line]
        if line.isascii():
            return start + min(position.character, len(line))
        # Half of a character counts as none of it.
        part = line.encode(self._codec)[: position.character * self._unit]
        return start + len(part.decode(self._codec, "ignore"))

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(start), self.position(end))

    def offsets(self, range_: lsp.Range) -> tuple[int, int]:
        return self.offset(range_.start), self.offset(range_.end)
