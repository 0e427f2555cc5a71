"""What can stand at a place of the page's text, and what a word of it is: the answers of the language server, for a page."""

from __future__ import annotations

from lsprotocol import types as lsp
from markdown_it import MarkdownIt

from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.features.completion import completion
from tensorc_dsl.lsp.features.hover import hover
from tensorc_dsl.lsp.records import Records
from tensorc_dsl.playground.findings import range_of
from tensorc_dsl.playground.messages import Completed, Described, Offer, Position

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
"""A description is of the page's text, too: its HTML is text."""

MIDDLE = 3
"""The order of what no step says anything about."""


def completed(analysis: Analysis, at: Position, records: Records) -> Completed:
    """What can stand at the place."""
    found = completion(analysis, _position(at), snippets=False, records=records)
    return Completed(tuple(map(_offer, found.items)))


def described(analysis: Analysis, at: Position, records: Records) -> Described:
    """What the name at the place is."""
    found = hover(analysis, _position(at), records)
    if found is None or found.range is None:
        return Described("", None)
    return Described(_html(found.contents), range_of(found.range))


def _position(at: Position) -> lsp.Position:
    return lsp.Position(max(0, at.line), max(0, at.character))


def _offer(item: lsp.CompletionItem) -> Offer:
    order = item.sort_text or ""
    kind = "" if item.kind is None else lsp.CompletionItemKind(item.kind).name.lower()
    about = "" if item.documentation is None else _html(item.documentation)
    return Offer(str(item.label), kind, item.detail or "", about, int(order[0]) if order[:1].isdecimal() else MIDDLE)


def _html(text: object) -> str:
    """A description as HTML."""
    return str(_MARKDOWN.render(text.value if isinstance(text, lsp.MarkupContent) else str(text)))
