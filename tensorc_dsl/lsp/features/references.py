"""References: every place that names the same thing, in the document and in the files of the editor's folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types as lsp

from tensorc_dsl.check.positions import Definition, Entry, Files, Written
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.documents import Documents, path_of

Key = frozenset[tuple[str, int]] | tuple[str, str]
"""The identity of a meaning in all files: the places of its definition, or a word of the language."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that means it, in the document of an analysis."""

    analysis: Analysis
    start: int
    end: int
    is_definition: bool

    @property
    def location(self) -> lsp.Location:
        return lsp.Location(self.analysis.uri, self.analysis.text.range(self.start, self.end))


def key_of(analysis: Analysis, definition: Definition) -> Key | None:
    """The identity of a meaning; None for one that is nowhere."""
    match definition:
        case Entry(kind=kind, name=name):
            return kind, name
        case Written() | Files():
            places = analysis.places(definition)
            own = path_of(analysis.uri).resolve()
            return frozenset((str(p.path.resolve() if p.path else own), p.start) for p in places) or None


def mentions(documents: Documents, analysis: Analysis, offset: int) -> list[Mention]:
    """All places that name what is named at an offset: in the document, in open ones, and in files of the folders.

    Words of the language are looked for in the document only, and so is what only it can name.
    """
    found = analysis.name_at(offset)
    key = None if found is None else key_of(analysis, found.definition)
    if found is None or key is None:
        return []
    out = [*_in(analysis, found.reference.name, key)]
    if isinstance(key, tuple) or isinstance(found.definition, Files):
        return out
    seen = {path_of(analysis.uri).resolve()}
    others = [d.path for d in documents.open.values()] + list(documents.files())
    for path in (*(Path(p) for p, _ in key), *others):
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        if not documents.has_word(real, found.reference.name):
            continue
        other = documents.of_file(real)
        if other is not None:
            out += _in(other, found.reference.name, key)
    return out


def _in(analysis: Analysis, name: str, key: Key) -> Iterator[Mention]:
    own = str(path_of(analysis.uri).resolve())
    for item in analysis.items:
        if name not in analysis.memory.entry(item).words:
            continue
        for f in analysis.found_in(item):
            if f.reference.name != name:
                continue
            here = key_of(analysis, f.definition)
            is_same = here == key or (isinstance(here, frozenset) and isinstance(key, frozenset) and bool(here & key))
            if is_same:
                yield Mention(analysis, f.start, f.end, isinstance(here, frozenset) and (own, f.start) in here)


def references(
    documents: Documents, analysis: Analysis, position: lsp.Position, with_definition: bool
) -> list[lsp.Location]:
    found = mentions(documents, analysis, analysis.text.offset(position))
    return [m.location for m in found if with_definition or not m.is_definition]


def highlights(analysis: Analysis, position: lsp.Position) -> list[lsp.DocumentHighlight]:
    """The places of the document alone; those that define it are writes."""
    found = analysis.name_at(analysis.text.offset(position))
    key = None if found is None else key_of(analysis, found.definition)
    if found is None or key is None:
        return []
    kinds = lsp.DocumentHighlightKind
    return [
        lsp.DocumentHighlight(m.location.range, kinds.Write if m.is_definition else kinds.Read)
        for m in _in(analysis, found.reference.name, key)
    ]
