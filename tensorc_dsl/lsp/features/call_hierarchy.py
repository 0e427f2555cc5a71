"""The hierarchy of calls: which modules, spaces and schedules a module applies, and which apply it; so for computes."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types as lsp

from tensorc_dsl.check.positions import Written
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.documents import Documents, path_of
from tensorc_dsl.lsp.features.definition import location
from tensorc_dsl.lsp.features.references import mentions
from tensorc_dsl.lsp.features.symbols import KINDS
from tensorc_dsl.lsp.meaning import meaning
from tensorc_dsl.syntax import tree as t

_CALLABLE = t.ModuleDef | t.SpaceDef | t.ScheduleDef | t.ComputeDef | t.ReducerDef | t.TaskDef


def prepare(analysis: Analysis, position: lsp.Position) -> list[lsp.CallHierarchyItem]:
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
