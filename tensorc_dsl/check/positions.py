"""Finds the name at a position of a file and its definition, for editors, and remembers what the check of each item found,
for the next version of the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.items import FACTS, Memory, Names, blocks_of
from tensorc_dsl.check.kinds import PARAM_TYPES, Kind, Listener, Signature, is_variable
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.check.spaces import check_module, check_schedule, check_space, nodes_of, outer_names, rule_name
from tensorc_dsl.elaborate.bindings import dimensions
from tensorc_dsl.elaborate.names import FUNCTIONS, Definitions
from tensorc_dsl.elaborate.views import ABOUT, VIEW
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.parse_expr import CASTS
from tensorc_dsl.ir.program import Program, Property
from tensorc_dsl.ir.target import GRAPH, is_kind
from tensorc_dsl.proof.sets.laws import LAWS
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import REDUCERS
from tensorc_dsl.syntax.traversal import children, walk

# The meaning of a name: a definition in a file, a word of the language, or files.


@frozen
class Written:
    """The places where the name is defined: one, or one in each branch that binds it."""

    spans: tuple[Span, ...]


@frozen
class Entry:
    """A word of the language: its kind ("primitive", "draw", "query", …), its name, and its description, if any.

    The name of a parameter begins with the name of its owner: `split.partial`.
    """

    kind: str
    name: str
    doc: str


@frozen
class Files:
    """The files that the path of a `use` stands for."""

    sources: tuple[Source, ...]


Definition = Written | Entry | Files


@frozen
class Reference:
    """A name in a file, with its meaning."""

    span: Span
    definition: Definition

    @property
    def name(self) -> str:
        return self.span.text


def written(name: t.Word | t.Name) -> Written:
    return Written((name.span,))


PROPERTIES = frozenset(p.value for p in Property)
"""What a compute can assume of an input."""


def entry(kind: str, name: str, known: Container[str]) -> Entry | None:
    """The entry for a word of that kind; None if there is no such word."""
    return Entry(kind, str(name), "") if name in known else None


def target_kind(name: str) -> Entry | None:
    """The entry for a kind of targets. Only for a name that is none of ours are the installed packages looked through."""
    return Entry("target", str(name), "") if is_kind(str(name)) else None


def by_place(found: Iterable[Reference]) -> tuple[Reference, ...]:
    """The references in text order, one for each place: the first that was reported."""
    once: dict[tuple[int, int], Reference] = {}
    for r in found:
        once.setdefault((r.span.start, r.span.end), r)
    return tuple(once[place] for place in sorted(once))


# Finds the meanings of names in computes, reducers, instructions and programs: tensors, sizes, indices, functions, types.
#
# The scopes are those of `elaborate` and `ir.parse`; this module reports no findings.


Known = dict[str, Definition]

ATTRIBUTE_TYPES = ("int", "float", "dtype")


def computes_names(c: t.ComputeDef) -> Known:
    """The names that are known in a whole compute: sizes, attributes, tensors, stages."""
    known: Known = {name: written(name) for s in c.stages if s.is_let for name in s.names}
    known |= {p.name: written(p.name) for p in (*c.inputs, *c.outputs)}
    known |= {a.name: written(a.name) for a in c.attributes} | {name: written(name) for name, _ in c.where}
    return known | {name: written(first) for name, first in dimensions(c).items()}


class Values:
    """Adds the meanings of names to `found`; `seen` are the computes and reducers that the file can name."""

    def __init__(self, found: list[Reference], seen: Definitions) -> None:
        self.found = found
        self.seen = seen

    def refer(self, name: t.Word | t.Name, to: Definition | None) -> None:
        if to is not None:
            self.found.append(Reference(name.span, to))

    def define(self, names: Iterable[t.Word]) -> Known:
        """The names, each defined at its own place."""
        known: Known = {}
        for name in names:
            self.refer(name, written(name))
            known[name] = written(name)
        return known

    # --- items -------------------------------------------------------------------------------------------------------

    def compute(self, c: t.ComputeDef) -> None:
        known = computes_names(c)
        for p in (*c.inputs, *c.outputs):
            self.refer(p.name, known[p.name])
            self._type(p.type, known)
            for e in p.strides:
                self.expr(e, known)
            if p.updates is not None:
                self.refer(p.updates, known.get(p.updates))
        for a in c.attributes:
            self.refer(a.name, known[a.name])
            if a.type is not None:
                self.refer(a.type.name, entry("type", str(a.type), ATTRIBUTE_TYPES))
            if a.default is not None:
                self.expr(a.default, known)
        for name, value in c.where:
            self.refer(name, known[name])
            self.expr(value, known)
        for condition in c.conditions:
            self.expr(condition, known)
        for a in c.assumes:
            self.refer(a.name, known.get(a.name))
            if isinstance(a.says, t.Word):
                self.refer(a.says, entry("law", str(a.says), PROPERTIES))
            else:
                self.expr(a.says, known)
        for s in c.stages:
            for name in s.names:
                self.refer(name, known.get(name))
            inside = self._indices(s.indices, known)
            for name in s.repeated:
                self.refer(name, inside.get(name))
            self.expr(s.value, inside)

    def reducer(self, r: t.ReducerDef) -> None:
        known = self.define((*r.before, *r.following))
        self.expr(r.combine, known)
        self.expr(r.identity, known)
        for law in r.assumes:
            self.refer(law, entry("law", law.id, LAWS))

    def intrinsic(self, i: t.IntrinsicDef) -> None:
        operands = self.define(o.name for o in i.operands)
        for o in i.operands:
            self._type(o.type, {})
        for e in i.effects:
            self.refer(e.name, operands.get(e.name))
            self.expr(e.value, self._indices(e.indices, operands))
        for layout in i.layouts:
            params = self.define(layout.params)
            self.define(name for name, _ in layout.places)
            for _, value in layout.places:
                self.expr(value, params)
        for lowering in i.lowerings:
            self.refer(lowering.target, target_kind(lowering.target))

    def program(self, p: t.ProgramDef) -> None:
        known: Known = {}
        for param in p.params:
            for e in (*param.type.shape, *param.strides):
                for name in walk(e):
                    if isinstance(name, t.Name):
                        known.setdefault(name.id, written(name))
        for name, _ in p.sizes:
            self.refer(name, known.get(name))
        for condition in p.conditions:
            self.expr(condition, known)
        for b in (*p.params, *p.buffers):
            self._type(b.type, known)
        known |= self.define(b.name for b in (*p.params, *p.buffers))
        for param in p.params:
            if param.updates is not None:
                self.refer(param.updates, known.get(param.updates))
        for s in p.body:
            self._statement(s, known)

    def _statement(self, s: t.ProgramStmt, known: Known) -> None:
        match s:
            case t.LoopStmt(loops=loops, body=body):
                inner = dict(known)
                for header in loops:
                    self.expr(header.extent, inner)
                    inner |= self.define([header.name])
                for below in body:
                    self._statement(below, inner)
            case t.BlockStmt():
                self.define([s.name])
                for i in s.iters:
                    self.expr(i.extent, known)
                    self.expr(i.binding, known)
                inner = known | self.define(i.name for i in s.iters)
                for e in s.where:
                    self.expr(e, known)
                for store in (*s.init, *s.body):
                    self.refer(store.buffer, known.get(store.buffer))
                    for e in (*store.indices, store.value):
                        self.expr(e, inner)

    # --- expressions -------------------------------------------------------------------------------------------------

    def expr(self, e: t.Expr, known: Mapping[str, Definition]) -> None:
        """Add the meanings of all names in an expression."""
        match e:
            case t.Name(id=name):
                self.refer(e, known.get(name) or entry("type", name, DTYPES))
            case t.CallExpr(function=t.Name() as function):
                self._call(function, e.args, e.kwargs, known)
            case t.Reduce(reducer=reducer):
                self.refer(reducer, self._reducer(reducer))
                self.expr(e.body, self._indices(e.indices, known))
            case t.Scan(index=index):
                self.refer(index.name, known.get(index.name))
                self.expr(e.init, known)
                self.expr(e.step, known)
            case _:
                for below in children(e):
                    self.expr(below, known)

    def _indices(self, indices: tuple[t.IndexSpec, ...], known: Mapping[str, Definition]) -> Known:
        for i in indices:
            if i.extent is not None:
                self.expr(i.extent, known)
        return {**known, **self.define(i.name for i in indices)}

    def _reducer(self, name: t.Word) -> Definition | None:
        own = self.seen.reducers.get(name)
        return entry("reducer", name, REDUCERS) if own is None else written(own.name)

    def _call(
        self,
        function: t.Name,
        args: tuple[t.Expr, ...],
        kwargs: tuple[tuple[t.Word, t.Expr], ...],
        known: Mapping[str, Definition],
    ) -> None:
        name = function.id
        called = self.seen.computes.get(name)
        params: Known = {}
        if called is not None:
            params = computes_names(called)
            self.refer(function, written(called.name))
        else:
            # A type converts; it may be an attribute.
            view = Entry("function", VIEW, ABOUT) if name == VIEW else None
            language = entry("function", name, FUNCTIONS) or entry("type", name, CASTS) or view
            self.refer(function, language or known.get(name))
        for a in args:
            self.expr(a, known)
        for key, value in kwargs:
            self.refer(key, params.get(key))
            self.expr(value, known)

    def _type(self, type_: t.TensorType, known: Mapping[str, Definition]) -> None:
        self.refer(type_.dtype, known.get(type_.dtype) or entry("type", type_.dtype, DTYPES))
        for e in type_.shape:
            self.expr(e, known)


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
            check_schedule(item, c.computes, c.models, c.modules, blocks, outer, listener)
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
            case t.ModelDef():
                self._model(item)
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
        of_kind = target_kind(s.target) or entry("target", s.target, (GRAPH,))
        self.refer(s.target, self._item(c.targets.get(s.target)) or of_kind)
        for rule in s.rules:
            name = rule_name(rule)
            if isinstance(rule, t.Name) and name not in c.modules:
                self.refer(rule, self._item(c.spaces.get(name)))
        listen(c, s, self._heard({}))

    def _schedule(self, s: t.ScheduleDef) -> None:
        c = self.checked
        compute, model = c.computes.get(s.compute), c.models.get(s.compute)
        self.refer(s.compute, self._item(compute or model))
        if model is not None and compute is None:
            listen(c, s, self._heard({name: written(name) for name in nodes_of(model)}))
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
        for condition in task.conditions:
            values.expr(condition, sizes)

    def _model(self, model: t.ModelDef) -> None:
        given = (*model.inputs, *model.outputs, *(model.weights.tensors if model.weights else ()))
        known: dict[str, t.Word] = {p.name: p.name for p in given}
        self.define(known.values())
        for p in given:
            self.refer(p.type.dtype, entry("type", p.type.dtype, DTYPES))
        for call in model.calls:
            for name in call.names:
                self.refer(name, written(known.setdefault(name, name)))
            if isinstance(call.value, t.CallExpr) and isinstance(function := call.value.function, t.Name):
                self.refer(function, self._item(self.checked.computes.get(function.id)))
                for a in call.value.args:
                    if isinstance(a, t.Name) and a.id in known:
                        self.refer(a, written(known[a.id]))

    def _item(self, item: t.NamedItem | None) -> Written | None:
        return None if item is None else written(item.name)


# Remembers what the check of each item of a file found, for the next version of the file.
#
# An item is an object: one that two versions of a file share is the same in both. It means the same as before if no name that
# it mentions means something else, of which no item is the same, or is the same and mentions such a name.


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_Meanings = dict[str, tuple[object, ...]]


@dataclass(slots=True)
class CheckedItem:
    """What is known of an item as long as it means the same."""

    item: t.Item
    words: frozenset[str]
    findings: list[Diagnostic] | None = None
    elaborated: Program | None = None
    references: tuple[Reference, ...] | None = None
    """The names in it; None until they are needed."""
    refusals: tuple[object, tuple[Diagnostic, ...] | None] | None = None
    """Of a task: what stands for its schedule, and what is refused of it, None if that takes too long to know."""


def _named(item: t.Item) -> str | None:
    return None if isinstance(item, t.UseDecl) else str(item.name)


@dataclass(slots=True)
class Remembered(Memory):
    """The memory of one file. It holds what the last check found, and nothing older."""

    entries: dict[int, CheckedItem] = field(default_factory=dict[int, CheckedItem])
    """By the identity of the item, which the entry keeps alive."""
    _meanings: _Meanings = field(default_factory=_Meanings)
    _constants: frozenset[str] = frozenset()

    def entry(self, item: t.Item) -> CheckedItem:
        """What is known of an item of the file that was checked last."""
        found = self.entries.get(id(item))
        if found is None:
            words = frozenset(_WORD.findall(item.span.text))
            self.entries[id(item)] = found = CheckedItem(item, words)
        return found

    def begin(self, items: Iterable[t.Item], names: Names) -> None:
        before, now = self._meanings, _items_by_name(names)
        changed = {n for n in before.keys() | now.keys() if not _same(before.get(n, ()), now.get(n, ()))}
        renamed = before.keys() != now.keys()
        old, self.entries, self._meanings = self.entries, {}, now
        listed = list(items)
        # A constant is hidden by names that the text of an item does not have, such as those of the blocks of its compute.
        constants, self._constants = self._constants, frozenset(names.constants)
        kept = [e for item in listed if (e := old.get(id(item))) is not None and constants == self._constants]
        changed |= {n for item in listed if id(item) not in old and (n := _named(item)) is not None}
        # A name means something else, too, if what it stands for mentions such a name.
        while stale := [e for e in kept if not e.words.isdisjoint(changed)]:
            kept = [e for e in kept if e.words.isdisjoint(changed)]
            changed |= {n for e in stale if (n := _named(e.item)) is not None}
        for e in kept:
            # Suggestions are made from all names, and notes tell lines, which may have moved.
            if e.findings and (renamed or any(d.notes for d in e.findings)):
                e.findings = None
            self.entries[id(e.item)] = e

    def findings(self, item: t.Item, names: Names, check: Callable[[], list[Diagnostic]]) -> list[Diagnostic]:
        known = self.entry(item)
        name = _named(item)
        if known.findings is None:
            known.findings = check()
            known.elaborated = names.elaborated.get(name) if isinstance(item, t.TaskDef) and name else None
            return known.findings
        if isinstance(item, t.ComputeDef) and known.findings:
            names.broken.add(item.name)
        if known.elaborated is not None and name is not None:
            names.elaborated[name] = known.elaborated
        return known.findings


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether both are the same objects."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _items_by_name(names: Names) -> _Meanings:
    """The items that each name stands for."""
    out: dict[str, list[object]] = {}
    for table in (
        names.computes, names.modules, names.spaces, names.schedules, names.priors, names.tasks, names.models, names.programs,
        names.reducers, names.targets, names.intrinsics, names.constants,
    ):  # fmt: skip
        for name, item in table.items():
            out.setdefault(str(name), []).append(item)
    return {name: tuple(items) for name, items in out.items()}
