"""Finds the name at a position of a file and its definition, for editors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tensorc_dsl.base.source import Span
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.included import rule_name
from tensorc_dsl.check.items import blocks_of
from tensorc_dsl.check.kinds import PARAM_TYPES, Kind
from tensorc_dsl.check.listener import Listener
from tensorc_dsl.check.meanings import (
    Definition,
    Entry,
    Files,
    Reference,
    Written,
    by_place,
    entry,
    target_kind,
    written,
)
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.check.signatures import Signature, is_variable
from tensorc_dsl.check.spaces import check_module, check_schedule, check_space, outer_names
from tensorc_dsl.check.targets import FACTS
from tensorc_dsl.check.values import Known, Values, computes_names
from tensorc_dsl.elaborate.names import Definitions
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.walk import walk


def name_at(checked: CheckedFile, offset: int) -> Reference | None:
    """The name at an offset of the file, with its meaning; None between names, and for a name without a meaning."""
    items = (i for i in checked.file.items if i.span.start <= offset < i.span.end)
    return next((r for r in _found(checked, items) if r.span.start <= offset < r.span.end), None)


def references(checked: CheckedFile) -> tuple[Reference, ...]:
    """Every name of the file that has a meaning, in text order, definitions included."""
    return by_place(_found(checked, checked.file.items))


def references_in(checked: CheckedFile, item: t.Item) -> tuple[Reference, ...]:
    """The same for one item."""
    return by_place(_found(checked, (item,)))


def listen(checked: CheckedFile, item: t.ModuleDef | t.SpaceDef | t.ScheduleDef, listener: Listener) -> None:
    """Have the listener told of the names in an item with a body; findings are reported by the checker."""
    c = checked
    outer = outer_names(c.intrinsics, c.constants)
    match item:
        case t.ModuleDef():
            check_module(item, c.modules, outer, listener)
        case t.SpaceDef():
            for _ in check_space(item, c.modules, c.spaces, outer, listener):
                pass
        case t.ScheduleDef():
            blocks = blocks_of(item, c.computes, c.library)
            check_schedule(item, c.computes, c.modules, blocks, outer, listener)
        case _:
            assert_never(item)


def _found(checked: CheckedFile, items: Iterable[t.Item]) -> list[Reference]:
    finder = _Finder(checked)
    for item in items:
        if isinstance(item, t.UseDecl):
            finder.use(item)
        else:
            finder.item(item)
    return finder.found


class _Heard(Listener):
    """Records what the checker reports about a body; `given` are names that the body has from outside."""

    def __init__(self, found: list[Reference], given: Known) -> None:
        self._found = found
        self._given = given

    def named(self, at: Span, name: str, places: tuple[Span, ...], kind: Kind) -> None:
        meaning = Written(places) if places else self._given.get(name)
        if meaning is not None:
            self._found.append(Reference(at, meaning))

    def asked(self, at: Span, name: str, doc: str) -> None:
        self._found.append(Reference(at, Entry("query", name, doc)))

    def called(self, call: t.CallExpr, at: Span, name: str, to: Signature | t.ModuleDef) -> None:
        if isinstance(to, t.ModuleDef):
            self._found.append(Reference(at, written(to.name)))
            params: Known = {p.name: written(p.name) for p in to.params}
        else:
            self._found.append(Reference(at, Entry(_kind(call, name), name, to.doc)))
            params = {p.name: Entry("parameter", f"{name}.{p.name}", "") for p in to.params}
        self._found += [Reference(key.span, params[key]) for key, _ in call.kwargs if key in params]


def _kind(call: t.CallExpr, name: str) -> str:
    if isinstance(call.function, t.Attribute):
        return "query" if any(name in table for table in QUERIES.values()) else "method"
    return "primitive" if name in (*v.STEPS, *v.COMPOUNDS) else "function" if name in v.FUNCTIONS else "draw"


class _Finder:
    def __init__(self, checked: CheckedFile) -> None:
        self.checked = checked
        self.found: list[Reference] = []
        self.seen = checked.library.files.get(checked.source.name, Definitions())
        self.given: Known = {name: Entry("given", name, "") for name in v.GIVEN}
        self.given |= {name: written(i.name) for name, i in checked.intrinsics.items()}

    def refer(self, word: t.Word | t.Name, to: Definition | None) -> None:
        if to is not None:
            self.found.append(Reference(word.span, to))

    def define(self, words: Iterable[t.Word]) -> None:
        for word in words:
            self.refer(word, written(word))

    def item(self, item: t.NamedItem) -> None:
        self.define([item.name])
        values = Values(self.found, self.seen)
        match item:
            case t.ComputeDef():
                values.compute(item)
            case t.ReducerDef():
                values.reducer(item)
            case t.IntrinsicDef():
                values.intrinsic(item)
            case t.ProgramDef():
                values.program(item)
            case t.ModuleDef():
                self._module(item)
            case t.SpaceDef():
                self._space(item)
            case t.ScheduleDef():
                self._schedule(item)
            case t.PriorDef():
                self.refer(item.of, self._item(self.checked.schedules.get(item.of) or self.checked.spaces.get(item.of)))
            case t.TaskDef():
                self._task(item)
            case t.TargetDef():
                self.refer(item.kind, target_kind(item.kind))
                for name, _ in item.facts:
                    self.refer(name, entry("fact", name, FACTS))
            case t.ConstDef():
                pass  # there is no other name in it
            case _:
                assert_never(item)

    def use(self, use: t.UseDecl) -> None:
        sources = self.checked.uses.get(use.path, ())
        if sources:
            for word in use.path:
                self.refer(word, Files(sources))
        c = self.checked
        tables = (
            c.computes,
            c.modules,
            c.spaces,
            c.schedules,
            c.targets,
            c.intrinsics,
            c.constants,
            self.seen.reducers,
        )
        for name in use.names:
            items = [table[name] for table in tables if name in table]
            spans = tuple(i.name.span for i in items if i.span.source in sources)
            self.refer(name, Written(spans) if spans else None)

    # --- bodies ------------------------------------------------------------------------------------------------------

    def _module(self, m: t.ModuleDef) -> None:
        self.define(p.name for p in m.params)
        types = [x.name for p in m.params if p.type is not None for x in walk(p.type) if isinstance(x, t.ParamType)]
        letters: Known = {}
        for name in types:
            if is_variable(name):
                self.refer(name, letters.setdefault(name, written(name)))
            else:
                self.refer(name, entry("type", name, PARAM_TYPES))
        listen(self.checked, m, self._heard({}))

    def _space(self, s: t.SpaceDef) -> None:
        c = self.checked
        self.refer(s.target, self._item(c.targets.get(s.target)) or target_kind(s.target))
        for rule in s.rules:
            name = rule_name(rule)
            if isinstance(rule, t.Name) and name not in c.modules:
                self.refer(rule, self._item(c.spaces.get(name)))
        listen(c, s, self._heard({}))

    def _schedule(self, s: t.ScheduleDef) -> None:
        c = self.checked
        compute = c.computes.get(s.compute)
        self.refer(s.compute, self._item(compute))
        if compute is None:
            return
        tensors = computes_names(compute)
        # The block of a nested reduction or call is not written in the text; its compute is.
        blocks = blocks_of(s, c.computes, c.library)
        given = {name: tensors.get(name, written(compute.name)) for name in blocks} | tensors
        listen(c, s, self._heard(given))

    def _heard(self, given: Known) -> _Heard:
        return _Heard(self.found, {**self.given, **given})

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _task(self, task: t.TaskDef) -> None:
        c = self.checked
        compute = c.computes.get(task.compute)
        self.refer(task.compute, self._item(compute))
        if task.with_ is not None:
            self.refer(task.with_, self._item(c.schedules.get(task.with_) or c.spaces.get(task.with_)))
        sizes = {} if compute is None else computes_names(compute)
        values = Values(self.found, self.seen)
        for name, value in task.bindings:
            self.refer(name, sizes.get(name))
            values.expr(value, {})

    def _item(self, item: t.NamedItem | None) -> Written | None:
        return None if item is None else written(item.name)
