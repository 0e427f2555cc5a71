"""From a name to its definition, to every place that names the same, to callers; and its renaming, of files too."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tensorc_dsl.base.diagnostic import Severity, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.check.positions import Definition, Entry, Files, Written
from tensorc_dsl.faces.lsp.analysis import Analysis, Found, Place, Text, meaning
from tensorc_dsl.faces.lsp.documents import Documents, file_of, path_of, uri_of
from tensorc_dsl.faces.lsp.structure import KINDS
from tensorc_dsl.faces.packages import SUFFIX, Resolver
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.parse import all_words

# References: every place that names the same thing, in the document and in the files of the editor's folders.


Key = frozenset[tuple[str, int]] | tuple[str, str]
"""The identity of a meaning in all files: the places of its definition, or a word of the language."""


@frozen
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


# Go to definition: where a name is bound, in the document or in a file that it uses.


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


# Rename: another name for what is named, everywhere, or the reason why not.


_NAME = re.compile(r"[A-Za-z_]\w*")


class Refused(JsonRpcException):
    """The editor shows the message."""

    CODE = lsp.LSPErrorCodes.RequestFailed.value
    MESSAGE = "cannot be renamed"


def rename_refused(reason: str) -> Refused:
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
        raise rename_refused("there is no name of this file here")
    if not _NAME.fullmatch(new) or new == "_":
        raise rename_refused(f"`{new}` is not a name")
    if all_words(new).kinds[0] in _RESERVED:
        raise rename_refused(f"`{new}` is a word of the language")
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
        raise rename_refused(f"with `{new}` for `{old}`, something would mean something else: the name is taken")


def _errors(analysis: Analysis) -> Counter[str]:
    return Counter(d.code for d, _ in analysis.findings() if d.severity is Severity.ERROR)


def _meant(analysis: Analysis) -> dict[int, tuple[int, ...]]:
    """Of each name of the document, by its place, where the document defines it."""
    return {f.start: _starts(analysis, f) for i in analysis.items for f in analysis.found_in(i)}


def _starts(analysis: Analysis, f: Found) -> tuple[int, ...]:
    """Where in the document it is defined."""
    return tuple(p.start for p in analysis.places(f.definition) if p.path is None)


# Files that are renamed or moved: each `use` of them is updated, in all files of the editor's folders.


FILTERS = lsp.FileOperationRegistrationOptions(
    [
        lsp.FileOperationFilter(lsp.FileOperationPattern(f"**/*{SUFFIX}", lsp.FileOperationPatternKind.File), "file"),
        lsp.FileOperationFilter(lsp.FileOperationPattern("**", lsp.FileOperationPatternKind.Folder), "file"),
    ]
)


def moves(documents: Documents, renamed: list[lsp.FileRename]) -> lsp.WorkspaceEdit | None:
    """The edits of the paths behind `use`, by the addresses that the files have before they are moved. None without any."""
    named = [(file_of(r.old_uri), file_of(r.new_uri)) for r in renamed]
    new = {old.resolve(): Path(new.absolute()) for old, new in named if old is not None and new is not None}
    changes: dict[str, list[lsp.TextEdit]] = {}
    seen: set[Path] = set()
    for path in (*(d.path for d in documents.open.values()), *documents.files()):
        real = path.resolve()
        tree = documents.tree(path) if new and real not in seen else None
        seen.add(real)
        if tree is None:
            continue
        uri, text, items = tree
        resolver = Resolver(path, documents.include)
        edits = [
            lsp.TextEdit(text.range(use.path[0].span.start, use.path[-1].span.end), ".".join(after))
            for use in items
            if isinstance(use, t.UseDecl) and (after := _after(resolver, real, use, new)) is not None
        ]
        if edits:
            changes[uri] = edits
    return lsp.WorkspaceEdit(changes=changes) if changes else None


def _after(resolver: Resolver, user: Path, use: t.UseDecl, new: Mapping[Path, Path]) -> tuple[str, ...] | None:
    """The path of a `use` once the files are moved; None if it stays, or no path leads there then."""
    path = tuple(map(str, use.path))
    if path[0] == "std":
        return None
    try:
        found = [file.resolve() for file in resolver.locate(path)]
    except TschedError:
        return None  # a diagnostic reports that there is no such path
    # The folder that is meant, or the file without its suffix.
    is_file = len(found) == 1 and found[0].stem == path[-1]
    before = found[0].with_suffix("") if is_file else found[0].parent
    after = _moved(found[0], new).with_suffix("") if is_file else _moved(before, new)
    if len(before.parts) <= len(path) or before.parts[-len(path) :] != path:
        return None  # a place that gives its files a name of its own
    root = Path(*before.parts[: -len(path)])
    base = _moved(user, new).parent if root == user.parent else _moved(root, new)
    inside = after.parts[len(base.parts) :] if after.is_relative_to(base) else ()
    if not inside or inside == path or inside[0] == "std" or not all(map(str.isidentifier, inside)):
        return None
    return inside


def _moved(path: Path, new: Mapping[Path, Path]) -> Path:
    """Where a file or a folder is afterwards."""
    return next((new[above] / path.relative_to(above) for above in _around(path) if above in new), path)


def _around(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


# The hierarchy of calls: which modules, spaces and schedules a module applies, and which apply it; so for computes.


_CALLABLE = t.ModuleDef | t.SpaceDef | t.ScheduleDef | t.ComputeDef | t.ReducerDef | t.TaskDef


def call_hierarchy_prepare(analysis: Analysis, position: lsp.Position) -> list[lsp.CallHierarchyItem]:
    """The item that is named at the position, or whose body it is in."""
    offset = analysis.text.offset(position)
    found = analysis.name_at(offset)
    if found is not None and isinstance(found.definition, Written):
        known = meaning(analysis, found.definition)
        if known is not None and isinstance(known.node, _CALLABLE):
            return [*_item(analysis, known.node)]
    inside = analysis.item_at(offset)
    return [*_item(analysis, inside)] if isinstance(inside, _CALLABLE) else []


def _item(analysis: Analysis, item: t.NamedItem) -> Iterator[lsp.CallHierarchyItem]:
    place, name = analysis.place(item.span), analysis.place(item.name.span)
    if place is None or name is None:
        return
    whole, own = location(analysis, place), location(analysis, name)
    label = str(item.name).rpartition(".")[2]
    detail = type(item).__name__.removesuffix("Def").lower()
    yield lsp.CallHierarchyItem(label, KINDS[type(item)], whole.uri, whole.range, own.range, detail=detail)


def _there(documents: Documents, item: lsp.CallHierarchyItem) -> tuple[Analysis, t.Item] | None:
    """The item of the hierarchy in its file, as that stands now."""
    analysis = documents.of_file(path_of(item.uri))
    if analysis is None:
        return None
    offset = analysis.text.offset(item.selection_range.start)
    found = analysis.item_at(offset)
    return None if found is None else (analysis, found)


def outgoing(documents: Documents, item: lsp.CallHierarchyItem) -> list[lsp.CallHierarchyOutgoingCall]:
    """What the item applies, with the places."""
    there = _there(documents, item)
    if there is None:
        return []
    analysis, inside = there
    calls: dict[tuple[str, int, int], tuple[lsp.CallHierarchyItem, list[lsp.Range]]] = {}
    for f in analysis.found_in(inside):
        if not isinstance(f.definition, Written):
            continue
        known = meaning(analysis, f.definition)
        if known is None or not isinstance(known.node, _CALLABLE) or known.item is inside:
            continue
        for called in _item(analysis, known.node):
            key = (called.uri, called.selection_range.start.line, called.selection_range.start.character)
            calls.setdefault(key, (called, []))[1].append(analysis.text.range(f.start, f.end))
    return [lsp.CallHierarchyOutgoingCall(called, ranges) for called, ranges in calls.values()]


def incoming(documents: Documents, item: lsp.CallHierarchyItem) -> list[lsp.CallHierarchyIncomingCall]:
    """The items that apply it, in all files of the editor's folders."""
    there = _there(documents, item)
    if there is None:
        return []
    analysis, _ = there
    calls: dict[tuple[str, int, int], tuple[lsp.CallHierarchyItem, list[lsp.Range]]] = {}
    for m in mentions(documents, analysis, analysis.text.offset(item.selection_range.start)):
        caller = m.analysis.item_at(m.start)
        if m.is_definition or not isinstance(caller, _CALLABLE):
            continue
        for found in _item(m.analysis, caller):
            key = (found.uri, found.selection_range.start.line, found.selection_range.start.character)
            calls.setdefault(key, (found, []))[1].append(m.location.range)
    return [lsp.CallHierarchyIncomingCall(found, ranges) for found, ranges in calls.values()]
