"""Sources and spans: named texts, and ranges of characters in them.

A `Source` is a named text; a `Span` is a half-open range of characters in one. Trees and diagnostics hold spans, which
take no part in equality (fields for them have `compare=False`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from itertools import accumulate
from pathlib import Path

from tensorc_dsl.base.frozen import frozen


@frozen
class Source:
    """A text with its name in messages."""

    name: str
    text: str
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        *lines, _ = self.text.split("\n")
        object.__setattr__(self, "_starts", (0, *accumulate(len(line) + 1 for line in lines)))

    @staticmethod
    def of(data: bytes, name: str) -> Source:
        """UTF-8 data as text, with CRLF line ends replaced by LF. Raises UnicodeDecodeError."""
        return Source(name, data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"))

    @staticmethod
    def read(path: Path, name: str | None = None) -> Source:
        """The text of a file. Raises OSError or UnicodeDecodeError."""
        return Source.of(path.read_bytes(), name or str(path))

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset."""
        line = bisect_right(self._starts, offset) - 1
        return line + 1, offset - self._starts[line] + 1

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its newline; empty past the end."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end]


@frozen
class Span:
    """Characters `start` to `end` (exclusive) of a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The smallest span that contains both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))
