"""Cuts a text into parts, each with one item as a rule, so that an edit leaves the trees of all other parts as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import Words
from tensorc_dsl.syntax.parse import all_words, item_starts, parse, parse_items

MOST_TRIES = 8
"""How many lines of a part are left out at most, to read the rest of it."""

_CLOSER = {"LPAR": ")", "LSQB": "]", "LBRACE": "}"}
_OPENER = {")": "(", "]": "[", "}": "{"}
_HEAD = re.compile(r"^(?!//)\w+\s+(\w+)", re.MULTILINE)


class Part(Source):
    """A part of a text. Its spans count from its own start, so that its trees stay when it moves.

    `offset` and `above` are the characters and the lines of the text above it.
    """

    __slots__ = ("above", "offset")

    offset: int
    above: int

    def at(self, offset: int, above: int) -> Part:
        """The same part, moved there."""
        # The text of a source never changes, but the place of a part does.
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "above", above)
        return self

    def line_column(self, offset: int) -> tuple[int, int]:
        line, column = Source.line_column(self, offset)
        return line + self.above, column

    def line(self, number: int) -> str:
        return Source.line(self, number - self.above)

    # Two parts with the same text are two places.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


@frozen
class Packed:
    """The semantic tokens of a part as the protocol has them, each relative to the one before, and the first one to the part.

    `line` and `column` are those of the last one in the part. `means` is what they were made from.
    """

    means: tuple[object, ...]
    data: list[int]
    line: int
    column: int


Where = tuple[int, int, int, int]
"""Characters of a part: the line and the column, in units, of the first and of the one behind the last."""


@frozen
class Symbol:
    """A named thing in a part. `kind` is a number of the protocol, `detail` stands behind the name, and `own` is the name."""

    name: str
    kind: int
    detail: str
    whole: Where
    own: Where
    parts: tuple[Symbol, ...] = ()


@dataclass
class Piece:
    """A part and what was read of it. `rest` is the same part without the lines that cannot be read, if there are such."""

    part: Part
    items: tuple[t.Item, ...]
    findings: tuple[Diagnostic, ...] = ()
    rest: Part | None = None
    packed: Packed | None = None
    symbols: tuple[str, list[Symbol]] | None = None
    """Its symbols, and the encoding in whose units their places are."""

    @cached_property
    def words(self) -> Words:
        """All words of the part, by their places in it."""
        return all_words(self.part.text)

    @property
    def start(self) -> int:
        return self.part.offset

    @property
    def end(self) -> int:
        return self.part.offset + len(self.part.text)

    @property
    def names(self) -> frozenset[str]:
        """The names of its items, of those that cannot be read too."""
        named = {str(i.name) for i in self.items if not isinstance(i, t.UseDecl)}
        return frozenset(named | set(_HEAD.findall(self.part.text) if self.findings else ()))

    def move(self, offset: int, above: int) -> Piece:
        for part in (self.part, self.rest):
            if part is not None:
                part.at(offset, above)
        return self


@dataclass(slots=True)
class Pieces:
    """The pieces of the last version of a text."""

    last: tuple[Piece, ...] = ()
    _by_text: dict[str, list[Piece]] = field(default_factory=dict[str, list[Piece]])

    def read(self, source: Source) -> tuple[Piece, ...]:
        """The pieces of the text, those of the last version where the text of a part is the same."""
        self._by_text = {}
        for piece in self.last:
            self._by_text.setdefault(piece.part.text, []).append(piece)
        found: list[Piece] = []
        offset = above = 0
        for text in self._joined(source.name, _cut(source.text)):
            found.append(self._piece(source.name, text).move(offset, above))
            offset += len(text)
            above += text.count("\n")
        self._by_text = {}
        self.last = tuple(found)
        return self.last

    def restore(self, pieces: tuple[Piece, ...]) -> None:
        """Have the pieces of an earlier version again, at their places in it."""
        offset = above = 0
        for piece in pieces:
            piece.move(offset, above)
            offset += len(piece.part.text)
            above += piece.part.text.count("\n")
        self.last = pieces

    def _piece(self, name: str, text: str) -> Piece:
        known = self._by_text.get(text)
        return known.pop() if known else read_part(name, text)

    def _joined(self, name: str, texts: list[str]) -> Iterator[str]:
        """The texts of the parts; those across which brackets are open are one, if that can be read."""
        n = 0
        while n < len(texts):
            piece = self._piece(name, texts[n])
            self._by_text.setdefault(piece.part.text, []).append(piece)
            last = n
            if piece.findings and (depth := _depth(texts[n])) > 0:
                for last in range(n + 1, len(texts)):
                    depth += _depth(texts[last])
                    if depth <= 0:
                        break
                whole = "".join(texts[n : last + 1])
                if depth != 0 or not _reads(name, whole):
                    last = n
            yield "".join(texts[n : last + 1])
            n = last + 1


def _cut(text: str) -> list[str]:
    starts = [s for s in item_starts(text) if s]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def _depth(text: str) -> int:
    """How many more brackets the text opens than it closes."""
    kinds = all_words(text).kinds
    return sum(k in _CLOSER for k in kinds) - sum(k in ("RPAR", "RSQB", "RBRACE") for k in kinds)


def _reads(name: str, text: str) -> bool:
    return not parse_items(Source(name, text)).diagnostics


def read_part(name: str, text: str) -> Piece:
    """The piece of a text at the start of a document."""
    part = Part(name, text).at(0, 0)
    parsed = parse_items(part)
    if not parsed.diagnostics:
        return Piece(part, parsed.file.items)
    rest = _tree_without_broken_lines(name, text)
    if rest is None:
        return Piece(part, parsed.file.items, parsed.diagnostics)
    return Piece(
        part, rest.items, parsed.diagnostics, Part.at(rest.source, 0, 0) if isinstance(rest.source, Part) else None
    )


def _tree_without_broken_lines(name: str, text: str) -> t.File | None:
    """The tree of the text without some lines, which are blank then; None if that takes too many.

    Brackets that stay open are closed at the end.
    """
    lines = text.split("\n")
    tries = max(1, min(MOST_TRIES, 4_000 // len(lines)))
    for _ in range(tries):
        found = _try(name, lines)
        if isinstance(found, t.File):
            return found
        at = _line_of(lines, found)
        # A slip shows at the word behind it: on its line, on the next one, or below an argument list that is left open.
        choices = [n for n in (_opened(lines, found), at, _above(lines, at)) if n is not None and _is_inside(lines, n)]
        if not choices:
            return None
        ways = {n: _try(name, _without(lines, n)) for n in choices}
        best = max(choices, key=lambda n: _reach(ways[n]))
        lines = _without(lines, best)
        if isinstance(way := ways[best], t.File):
            return way
    return None


def _try(name: str, lines: list[str]) -> t.File | int:
    """The tree of the lines, or the offset of what is wrong."""
    text = "\n".join(lines)
    try:
        return parse(Part(name, text + _closing(text)).at(0, 0))
    except TschedError as e:
        span = e.diagnostics[0].span
        return len(text) if span is None else min(span.start, len(text))


def _reach(way: t.File | int) -> float:
    return float("inf") if isinstance(way, t.File) else way


def _closing(text: str) -> str:
    """The brackets that close what the text leaves open."""
    words = all_words(text)
    open_: list[str] = []
    for kind, word in zip(words.kinds, words.texts, strict=True):
        if kind in _CLOSER:
            open_.append(_CLOSER[kind])
        elif word in _OPENER and open_ and open_[-1] == word:
            open_.pop()
    # A comment at the end would hide them.
    return "\n" + "".join(reversed(open_)) if open_ else ""


def _opened(lines: list[str], offset: int) -> int | None:
    """The line of the last `(` or `[` before the offset that is open there."""
    words = all_words("\n".join(lines)[:offset])
    open_: list[tuple[str, int]] = []
    for kind, word, start in zip(words.kinds, words.texts, words.starts, strict=True):
        if kind in _CLOSER:
            open_.append((kind, start))
        elif word in _OPENER and open_:
            open_.pop()
    return _line_of(lines, open_[-1][1]) if open_ and open_[-1][0] != "LBRACE" else None


def _line_of(lines: list[str], offset: int) -> int:
    return "\n".join(lines)[:offset].count("\n")


def _above(lines: list[str], n: int) -> int | None:
    """The last line above that has a word."""
    return next((k for k in range(n - 1, -1, -1) if lines[k].strip()), None)


def _is_inside(lines: list[str], n: int) -> bool:
    """Whether a line has a word, and stands below the one on which the item opens its braces."""
    return bool(lines[n].strip()) and any(lines[k].rstrip().endswith("{") for k in range(n))


def _without(lines: list[str], n: int) -> list[str]:
    return [*lines[:n], " " * len(lines[n]), *lines[n + 1 :]]
