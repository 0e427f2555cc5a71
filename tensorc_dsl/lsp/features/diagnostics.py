"""Diagnostics: what is wrong with a document, while it is written."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import Diagnostic, Severity
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import problems
from tensorc_dsl.lsp.analysis import Analysis, Place
from tensorc_dsl.lsp.documents import LARGEST, Document, uri_of
from tensorc_dsl.lsp.text import Text
from tensorc_dsl.syntax import tree as t

_SEVERITY = {Severity.ERROR: lsp.DiagnosticSeverity.Error, Severity.WARNING: lsp.DiagnosticSeverity.Warning}

_FADED = {p.code for p in (problems.UNUSED_LET, problems.UNUSED_DRAW, problems.UNUSED_PARAMETER)}
"""Of names that nothing reads, which an editor shows in a paler colour."""

SOURCE = "tensorc-dsl"


def diagnostics(analysis: Analysis, document: Document) -> list[lsp.Diagnostic]:
    """The findings about a document, in text order."""
    if len(document.text) > LARGEST:
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        said = f"the text has more than {LARGEST:,} characters and is not checked here; `tensorc-dsl check` does it"
        return [lsp.Diagnostic(whole, said, lsp.DiagnosticSeverity.Information, source=SOURCE)]
    found = [told(analysis, d, place) for d, place in analysis.findings()]
    return sorted(found, key=lambda d: (d.range.start.line, d.range.start.character))


def told(analysis: Analysis, d: Diagnostic, place: Place | None) -> lsp.Diagnostic:
    """A finding as an editor shows it, with links to the places that its notes name. One in a used file stands at the `use`,
    with a link to its place."""
    text = analysis.text
    related: list[lsp.DiagnosticRelatedInformation] = []
    if place is not None and place.path is None:
        at = text.range(place.start, place.end)
    else:
        at = _use_of(analysis, place)
        if place is not None and place.path is not None:
            there = Text(place.source, text.encoding).range(place.start, place.end)
            where = lsp.Location(uri_of(place.path), there)
            related.append(lsp.DiagnosticRelatedInformation(where, d.message))
    for note in d.notes:
        if note.at is not None and (named := _location(analysis, note.at)) is not None:
            related.append(lsp.DiagnosticRelatedInformation(named, note.words.strip(" :")))
    return lsp.Diagnostic(
        at,
        "\n".join((d.message, *_more(d))),
        _SEVERITY[d.severity],
        d.code,
        source=SOURCE,
        tags=[lsp.DiagnosticTag.Unnecessary] if d.code in _FADED else None,
        related_information=related or None,
        data={"notes": [n.text for n in d.notes if n.kind == "help"]},
    )


def _location(analysis: Analysis, span: Span) -> lsp.Location | None:
    """The place of a span for an editor; None if its file is not known."""
    place = analysis.place(span)
    if place is None:
        return None
    if place.path is None:
        return lsp.Location(analysis.uri, analysis.text.range(place.start, place.end))
    text = Text(place.source, analysis.text.encoding)
    return lsp.Location(uri_of(place.path), text.range(place.start, place.end))


def _more(d: Diagnostic) -> Iterator[str]:
    if d.label and d.label not in d.message:
        yield d.label
    for note in d.notes:
        yield f"{note.kind}: {note.text}"


def _use_of(analysis: Analysis, place: Place | None) -> lsp.Range:
    """The `use` that brings the file of a finding; the first one if another file uses it, and the start without any."""
    uses = [i for i in analysis.items if isinstance(i, t.UseDecl)]
    brings = [u for u in uses if place is not None and place.source in analysis.checked.uses.get(u.path, ())]
    for use in (*brings, *uses):
        return analysis.text.range(analysis.start(use.span), analysis.end(use.span))
    return analysis.text.range(0, 0)
