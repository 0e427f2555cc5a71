"""What is known of one version of a document: its pieces, the checked file, the findings, and its names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check.positions import Definition, Files, Reference, Remembered, Written, references_in
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.faces.lsp.parts import Part, Piece
from tensorc_dsl.faces.lsp.text import Text
from tensorc_dsl.faces.packages.resolve import Resolver
from tensorc_dsl.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Place:
    """Characters of a file; `path` is None for the document itself."""

    path: Path | None
    source: Source
    start: int
    end: int


@dataclass(frozen=True, slots=True)
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
