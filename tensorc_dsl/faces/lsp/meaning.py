"""What a definition is: the item, the parameter, the stage or the statement that binds the name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.base.source import Span
from tensorc_dsl.check.kinds import Kind, Listener
from tensorc_dsl.check.positions import Written, listen
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.tree import walk

Declared = (
    t.NamedItem | t.TensorParam | t.Param | t.Stage | t.Let | t.DrawStmt | t.ForList | t.Either | t.Maybe | t.Branch
)


@dataclass(frozen=True, slots=True)
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
