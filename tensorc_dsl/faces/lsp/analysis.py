"""What is known of one version of a document: its text with positions as an editor counts, its pieces, the checked file,
the findings, its names, and what a definition is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check.kinds import Kind, Listener
from tensorc_dsl.check.positions import Definition, Files, Reference, Remembered, Written, listen, references_in
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.faces.lsp.parts import Part, Piece
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.traversal import walk

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


@frozen
class Place:
    """Characters of a file; `path` is None for the document itself."""

    path: Path | None
    source: Source
    start: int
    end: int


@frozen
class Found:
    """A name in the document, at these characters, with its meaning."""

    start: int
    end: int
    reference: Reference

    @property
    def definition(self) -> Definition:
        return self.reference.definition


@dataclass(slots=True)
class Analysis:
    """One version of a document. Offsets are those of its whole text, unless stated otherwise."""

    uri: str
    version: int
    text: Text
    pieces: tuple[Piece, ...]
    checked: CheckedFile
    memory: Remembered = field(repr=False)
    resolver: Resolver = field(repr=False)

    @property
    def source(self) -> Source:
        return self.text.source

    @property
    def misses_files(self) -> bool:
        """Whether a `use` of the document has no files."""
        return any(isinstance(i, t.UseDecl) and not self.checked.uses.get(i.path) for i in self.items)

    def piece_at(self, offset: int) -> Piece | None:
        """The piece that holds an offset, or that ends the text there."""
        found = next((p for p in self.pieces if p.start <= offset < p.end), None)
        return found or (self.pieces[-1] if self.pieces else None)

    def item_at(self, offset: int) -> t.Item | None:
        """The item around an offset."""
        return next((i for i in self.items_at(offset) if self.start(i.span) <= offset <= self.end(i.span)), None)

    def items_at(self, offset: int) -> tuple[t.Item, ...]:
        piece = self.piece_at(offset)
        return () if piece is None else piece.items

    @property
    def items(self) -> Iterator[t.Item]:
        for piece in self.pieces:
            yield from piece.items

    # --- places ------------------------------------------------------------------------------------------------------

    def is_own(self, span: Span) -> bool:
        """Whether a span lies in the document."""
        return isinstance(span.source, Part) or span.source is self.source

    @staticmethod
    def start(span: Span) -> int:
        """The offset of a span of the document."""
        return span.start + (span.source.offset if isinstance(span.source, Part) else 0)

    @staticmethod
    def end(span: Span) -> int:
        return span.end + (span.source.offset if isinstance(span.source, Part) else 0)

    def place(self, span: Span) -> Place | None:
        """Where a span is; None if its file is not known."""
        if self.is_own(span):
            return Place(None, self.source, self.start(span), self.end(span))
        path = self.resolver.path_of(span.source)
        return None if path is None else Place(path, span.source, span.start, span.end)

    def places(self, definition: Definition) -> list[Place]:
        """Where a name is defined: nowhere for a word of the language, and at their starts for files."""
        match definition:
            case Written(spans=spans):
                return [p for span in spans if (p := self.place(span)) is not None]
            case Files(sources=sources):
                return [p for s in sources if (p := self.place(Span(s, 0, 0))) is not None]
            case _:
                return []

    # --- names -------------------------------------------------------------------------------------------------------

    def names_in(self, item: t.Item) -> tuple[Reference, ...]:
        """The names of an item that have a meaning, by their places in its part."""
        known = self.memory.entry(item)
        if known.references is None:
            known.references = references_in(self.checked, item)
        return known.references

    def found_in(self, item: t.Item) -> Iterator[Found]:
        for r in self.names_in(item):
            yield Found(self.start(r.span), self.end(r.span), r)

    def name_at(self, offset: int) -> Found | None:
        """The name at an offset, or that ends there."""
        found = [f for i in self.items_at(offset) for f in self.found_in(i) if f.start <= offset <= f.end]
        return next((f for f in found if offset < f.end), found[0] if found else None)

    # --- findings ----------------------------------------------------------------------------------------------------

    def findings(self) -> list[tuple[Diagnostic, Place | None]]:
        """What is wrong: what cannot be read, and what is found in the rest of the file and does not follow from that.

        The place is None for a finding in a file whose path is not known.
        """
        own: list[tuple[Diagnostic, Place | None]] = []
        torn: set[str] = set()
        lost: set[int] = set()
        for p in self.pieces:
            own += ((d, self.place(d.span) if d.span is not None else None) for d in p.findings)
            if p.findings:
                torn |= p.names
                lost |= {id(x) for x in (p.part, p.rest)}
        for d in self.checked.diagnostics:
            part = None if d.span is None else d.span.source
            if isinstance(part, Part) and (id(part) in lost or (torn and self._mentions(part, torn))):
                continue
            own.append((d, None if d.span is None else self.place(d.span)))
        return own

    def _mentions(self, part: Part, names: set[str]) -> bool:
        """Whether an item of the part mentions one of the names."""
        pieces = (p for p in self.pieces if p.part is part)
        return any(not self.memory.entry(i).words.isdisjoint(names) for p in pieces for i in p.items)


Declared = (
    t.NamedItem | t.TensorParam | t.Param | t.Stage | t.Let | t.DrawStmt | t.ForList | t.Either | t.Maybe | t.Branch
)


@frozen
class Meaning:
    """The node that binds a name, and the item that it stands in."""

    item: t.NamedItem
    node: Declared | None


def items_of(analysis: Analysis) -> Iterator[t.NamedItem]:
    """All items that the document can name, and its own ones."""
    c = analysis.checked
    for item in analysis.items:
        if not isinstance(item, t.UseDecl):
            yield item
    tables = (c.computes, c.modules, c.spaces, c.schedules, c.targets, c.intrinsics, c.constants)
    for table in tables:
        yield from table.values()
    for definitions in c.library.files.values():
        yield from definitions.computes.values()
        yield from definitions.reducers.values()


def meaning(analysis: Analysis, definition: Written) -> Meaning | None:
    """What the first place of a definition is; None for one that no item of the document or its uses holds."""
    if not definition.spans:
        return None
    span = definition.spans[0]
    for item in items_of(analysis):
        own = item.span
        if own.source is span.source and own.start <= span.start < own.end:
            return Meaning(item, _node(item, span))
    return None


def _is(word: t.Word | t.NamePattern | None, span: Span) -> bool:
    return word is not None and word.span.start == span.start and word.span.end == span.end


def _node(item: t.NamedItem, span: Span) -> Declared | None:
    if _is(item.name, span):
        return item
    for node in walk(item):
        match node:
            case t.TensorParam(name=name) | t.Param(name=name) | t.Stage(name=name) if _is(name, span):
                return node
            case t.Either(name=name) | t.Maybe(name=name) | t.Branch(name=name) if _is(name, span):
                return node
            case t.DrawStmt(name=pattern) if _is(pattern, span):
                return node
            case t.Let(pattern=pattern) | t.ForList(target=pattern):
                names = pattern.items if isinstance(pattern, t.ListPattern) else (pattern,)
                if any(_is(n, span) for n in names):
                    return node
            case _:
                pass
    return None


class Kinds(Listener):
    """The kinds of the names of a body, by where they start in their part."""

    def __init__(self) -> None:
        self.found: dict[int, Kind] = {}

    def named(self, at: Span, name: str, places: tuple[Span, ...], kind: Kind) -> None:
        self.found.setdefault(at.start, kind)


def kind_of(analysis: Analysis, item: t.Item | None, at: Span) -> Kind | None:
    """The kind of the value of a name in a body; None where there is no body."""
    if not isinstance(item, t.ModuleDef | t.SpaceDef | t.ScheduleDef):
        return None
    kinds = Kinds()
    listen(analysis.checked, item, kinds)
    return kinds.found.get(at.start)
