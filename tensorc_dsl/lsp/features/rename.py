"""Rename: another name for what is named, everywhere, or the reason why not."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tensorc_dsl.base.diagnostic import Severity
from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.check.positions import Written
from tensorc_dsl.lsp.analysis import Analysis, Found
from tensorc_dsl.lsp.documents import Documents, path_of
from tensorc_dsl.lsp.features.references import Mention, key_of, mentions
from tensorc_dsl.syntax.parse import all_words

_NAME = re.compile(r"[A-Za-z_]\w*")


class Refused(JsonRpcException):
    """The editor shows the message."""

    CODE = lsp.LSPErrorCodes.RequestFailed.value
    MESSAGE = "cannot be renamed"


def refuse(reason: str) -> Refused:
    return Refused(reason, Refused.CODE)


def prepare(analysis: Analysis, position: lsp.Position) -> lsp.PrepareRenamePlaceholder | None:
    """The name that would be changed; None where there is none that can be."""
    found = _named(analysis, position)
    if found is None:
        return None
    return lsp.PrepareRenamePlaceholder(analysis.text.range(found.start, found.end), found.reference.name)


def _named(analysis: Analysis, position: lsp.Position) -> Found | None:
    found = analysis.name_at(analysis.text.offset(position))
    if found is None or not isinstance(found.definition, Written):
        return None
    key = key_of(analysis, found.definition)
    library = stdlib_root().resolve()
    own = path_of(analysis.uri).resolve()
    foreign = not own.is_relative_to(library)
    if not isinstance(key, frozenset) or (foreign and any(Path(p).is_relative_to(library) for p, _ in key)):
        return None
    return found


def rename(documents: Documents, analysis: Analysis, position: lsp.Position, new: str) -> lsp.WorkspaceEdit:
    """The edits of all files. Raises Refused if the new name is none, or something would mean something else then."""
    found = _named(analysis, position)
    if found is None:
        raise refuse("there is no name of this file here")
    if not _NAME.fullmatch(new) or new == "_":
        raise refuse(f"`{new}` is not a name")
    if all_words(new).kinds[0] in _RESERVED:
        raise refuse(f"`{new}` is a word of the language")
    places = mentions(documents, analysis, analysis.text.offset(position))
    by_file: dict[str, list[Mention]] = {}
    for m in places:
        by_file.setdefault(m.analysis.uri, []).append(m)
    for own in by_file.values():
        _require_same(documents, own, found.reference.name, new)
    return lsp.WorkspaceEdit(
        changes={
            uri: [lsp.TextEdit(m.location.range, new) for m in sorted(own, key=lambda m: m.start)]
            for uri, own in by_file.items()
        }
    )


_RESERVED = frozenset("LET IF ELSE FOR YIELD EITHER MAYBE OR AND NOT TRUE FALSE IN INF NAN WHERE WILDCARD".split())


def _require_same(documents: Documents, own: list[Mention], old: str, new: str) -> None:
    """Raises Refused unless each name of the file means what it meant, wherever the file alone decides."""
    before = own[0].analysis
    text, shift, moved = before.source.text, len(new) - len(old), sorted(m.start for m in own)
    for start in reversed(moved):
        text = text[:start] + new + text[start + len(old) :]

    def there(offset: int) -> int:
        return offset + shift * bisect_left(moved, offset)

    errors, is_bound_here = _errors(before), any(m.is_definition for m in own)
    names = _meant(before) if is_bound_here else {}
    with documents.tried(before, text) as after:
        wrong = is_bound_here and _errors(after) - errors
        again = _meant(after) if is_bound_here else {}
    if wrong or any(again.get(there(n)) != tuple(map(there, meant)) for n, meant in names.items()):
        raise refuse(f"with `{new}` for `{old}`, something would mean something else: the name is taken")


def _errors(analysis: Analysis) -> Counter[str]:
    return Counter(d.code for d, _ in analysis.findings() if d.severity is Severity.ERROR)


def _meant(analysis: Analysis) -> dict[int, tuple[int, ...]]:
    """Of each name of the document, by its place, where the document defines it."""
    return {f.start: _starts(analysis, f) for i in analysis.items for f in analysis.found_in(i)}


def _starts(analysis: Analysis, f: Found) -> tuple[int, ...]:
    """Where in the document it is defined."""
    return tuple(p.start for p in analysis.places(f.definition) if p.path is None)
