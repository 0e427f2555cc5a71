"""Go to definition: where a name is bound, in the document or in a file that it uses."""

from __future__ import annotations

from lsprotocol import types as lsp

from tensorc_dsl.check.positions import Entry
from tensorc_dsl.lsp.analysis import Analysis, Place
from tensorc_dsl.lsp.documents import uri_of
from tensorc_dsl.lsp.text import Text


def location(analysis: Analysis, place: Place) -> lsp.Location:
    """A place as the editor names it."""
    if place.path is None:
        return lsp.Location(analysis.uri, analysis.text.range(place.start, place.end))
    there = Text(place.source, analysis.text.encoding)
    return lsp.Location(uri_of(place.path), there.range(place.start, place.end))


def definition(analysis: Analysis, position: lsp.Position) -> list[lsp.Location]:
    """The places where the name is defined; none for a word of the language."""
    found = analysis.name_at(analysis.text.offset(position))
    if found is None or isinstance(found.definition, Entry):
        return []
    return [location(analysis, p) for p in analysis.places(found.definition)]
