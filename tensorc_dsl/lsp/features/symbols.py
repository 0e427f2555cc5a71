"""Symbols: the items of a document with their parts, and those of all files by name."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types as lsp

from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.documents import Documents
from tensorc_dsl.source import Span
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.walk import walk

_K = lsp.SymbolKind

MOST = 256
"""The number of symbols of all files that one answer has."""

KINDS: dict[type, lsp.SymbolKind] = {
    t.ComputeDef: _K.Function, t.ReducerDef: _K.Operator, t.IntrinsicDef: _K.Interface, t.ModuleDef: _K.Method,
    t.SpaceDef: _K.Namespace, t.ScheduleDef: _K.Class, t.PriorDef: _K.Class, t.TaskDef: _K.Event, t.TargetDef: _K.Struct,
    t.ConstDef: _K.Constant, t.ProgramDef: _K.Module,
}  # fmt: skip


def symbols(analysis: Analysis) -> list[lsp.DocumentSymbol]:
    """The items, each with its tensors, stages, parameters and draws."""
    return [_symbol(analysis, i) for i in analysis.items if not isinstance(i, t.UseDecl)]


def _symbol(analysis: Analysis, item: t.NamedItem) -> lsp.DocumentSymbol:
    parts = [
        lsp.DocumentSymbol(name, kind, _range(analysis, whole), _range(analysis, own), _detail(whole, own))
        for name, kind, whole, own in _parts(item)
    ]
    detail = type(item).__name__.removesuffix("Def").lower()
    whole, own = _range(analysis, item.span), _range(analysis, item.name.span)
    return lsp.DocumentSymbol(str(item.name), KINDS[type(item)], whole, own, detail, children=parts)


def _detail(whole: Span, own: Span) -> str | None:
    """What stands behind the name on its line."""
    text = whole.text[own.end - whole.start :].partition("\n")[0].strip(" :~=")
    return text[:60] or None


def _range(analysis: Analysis, span: Span) -> lsp.Range:
    return analysis.text.range(analysis.start(span), analysis.end(span))


def _parts(item: t.NamedItem) -> Iterator[tuple[str, lsp.SymbolKind, Span, Span]]:
    match item:
        case t.ComputeDef():
            for p in (*item.inputs, *item.outputs, *item.attributes):
                yield str(p.name), _K.Variable, p.span, p.name.span
            for s in item.stages:
                if s.is_let:
                    yield str(s.name), _K.Variable, s.span, s.name.span
        case t.ModuleDef():
            for p in item.params:
                yield str(p.name), _K.Variable, p.span, p.name.span
            yield from _draws(item.body)
        case t.ScheduleDef():
            yield from _draws(item.body)
        case _:
            pass


def _draws(body: tuple[t.Stmt, ...]) -> Iterator[tuple[str, lsp.SymbolKind, Span, Span]]:
    for s in body:
        for node in walk(s):
            match node:
                case t.DrawStmt(name=name):
                    yield name.name, _K.Field, node.span, name.span
                case t.Maybe(name=name):
                    yield str(name), _K.Field, node.span, name.span
                case t.Either(name=name) if name is not None:
                    yield str(name), _K.Field, node.span, name.span
                case _:
                    pass


def workspace_symbols(documents: Documents, query: str) -> list[lsp.WorkspaceSymbol]:
    """The items of the editor's files whose names have the letters of the query, in that order."""
    found: list[lsp.WorkspaceSymbol] = []
    seen: set[str] = set()
    for path in (*(d.path for d in documents.open.values()), *documents.files()):
        if str(path.resolve()) in seen:
            continue
        seen.add(str(path.resolve()))
        tree = documents.tree(path)
        if tree is None:
            continue
        uri, text, items = tree
        for i in items:
            if not isinstance(i, t.UseDecl) and _matches(query.lower(), str(i.name).lower()):
                start = i.name.span.start
                at = lsp.Location(uri, text.range(start, start + len(i.name)))
                found.append(lsp.WorkspaceSymbol(at, str(i.name), KINDS[type(i)], container_name=path.name))
        if len(found) >= MOST:
            break
    return found[:MOST]


def _matches(query: str, name: str) -> bool:
    letters = iter(name)
    return all(c in letters for c in query)
