"""Finds the meanings of names in computes, reducers, instructions and programs: tensors, sizes, indices, functions, types.

The scopes are those of `elaborate` and `ir.parse`; this module reports no findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorc_dsl.check.meanings import Definition, Reference, entry, target_kind, written
from tensorc_dsl.elaborate.bindings import dimensions
from tensorc_dsl.elaborate.names import FUNCTIONS, Definitions
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.parse_expr import CASTS
from tensorc_dsl.proof.sets.laws import LAWS
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import REDUCERS
from tensorc_dsl.syntax.walk import children, walk

Known = dict[str, Definition]

ATTRIBUTE_TYPES = ("int", "float", "dtype")


def computes_names(c: t.ComputeDef) -> Known:
    """The names that are known in a whole compute: sizes, attributes, tensors, stages."""
    known: Known = {s.name: written(s.name) for s in c.stages if s.is_let}
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
            if not isinstance(a.says, t.Word):
                self.expr(a.says, known)
        for s in c.stages:
            self.refer(s.name, known.get(s.name))
            self.expr(s.value, self._indices(s.indices, known))

    def reducer(self, r: t.ReducerDef) -> None:
        known = self.define(r.params)
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
            language = entry("function", name, FUNCTIONS) or entry("type", name, CASTS)
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
