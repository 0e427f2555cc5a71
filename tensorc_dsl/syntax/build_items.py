"""Builds items: computes, modules, programs, …; see `syntax.build`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax import problems
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.build import Parts, Seq, items, rule
from tensorc_dsl.syntax.build_expr import no_subscripts
from tensorc_dsl.syntax.build_stmts import StmtBuilder


def _docs(parts: Parts) -> tuple[str, Parts]:
    """The description in front of an item, without slashes and trailing blanks, and the other parts."""
    doc, *rest = parts
    if doc is None:
        return "", rest
    return "\n".join(line[3:].removeprefix(" ").rstrip() for line in str(doc).split("\n")), rest


def _after_doc(span: Span, parts: Parts) -> Span:
    """The span of an item without the description in front of it."""
    if parts[0] is None:
        return span
    text = span.source.text
    start = parts[0].end_pos
    while text[start].isspace() or text.startswith("//", start):
        start = text.index("\n", start) if text.startswith("//", start) else start + 1
    return Span(span.source, start, span.end)


def _of(parts: Parts, *kinds: type) -> tuple[Any, ...]:
    return tuple(p for p in parts if isinstance(p, kinds))


@dataclass(frozen=True, slots=True)
class Axis:
    """`bound("block.x")`, before a loop."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@("key", value)`."""

    key: str
    value: t.Expr
    span: Span


def _annotations(parts: Parts) -> tuple[tuple[str, t.Expr], ...]:
    return tuple((a.key, a.value) for a in _of(parts, Annotation))


def _empty_brackets(name: t.Word) -> TschedError:
    return TschedError(no_subscripts(replace(name.span, end=name.span.source.text.index("]", name.span.end) + 1)))


def _indices(name: t.Word, indices: Seq[t.IndexSpec] | None) -> tuple[t.IndexSpec, ...]:
    """The indices in the brackets behind a name. Raises TschedError for empty brackets."""
    if indices is None:
        raise _empty_brackets(name)
    return indices.items


class Init(Seq[t.StoreStmt]):
    pass


class NamedSize(Seq[Any]):
    """`M = N / 2`, behind `where`."""


class Guard(Seq[t.Expr]):
    pass


class FileBuilder(StmtBuilder):
    @rule
    def file(self, span: Span, parts: Parts) -> t.File:
        return t.File(span.source, tuple(parts))

    # --- compute ---

    @rule
    def compute(self, span: Span, parts: Parts) -> t.ComputeDef:
        doc, (name, inputs, attributes, outputs, dims, assumptions, *stages) = _docs(parts)
        sizes: tuple[Any, ...] = items(dims)
        named = tuple(x.items for x in _of(list(sizes), NamedSize))
        conditions = tuple(x for x in sizes if type(x) is not NamedSize)
        return t.ComputeDef(
            name, items(inputs), items(attributes), outputs.items, named, conditions, items(assumptions), tuple(stages),
            doc, _after_doc(span, parts),
        )  # fmt: skip

    @rule
    def tensor_params(self, span: Span, parts: Parts) -> Seq[t.TensorParam]:
        return Seq(tuple(parts), span)

    outputs = tensor_params

    @rule
    def tensor_param(self, span: Span, parts: Parts) -> t.TensorParam:
        name, constant, type_, strides, updates = parts
        return t.TensorParam(name, type_, constant is not None, items(strides), updates, span)

    @rule
    def updates(self, span: Span, parts: Parts) -> t.Word:
        return parts[0]

    @rule
    def tensor_type(self, span: Span, parts: Parts) -> t.TensorType:
        if parts[1] is not None and not parts[1].items:
            raise TschedError(no_subscripts(span))
        return t.TensorType(parts[0], items(parts[1]), span)

    @rule
    def shape(self, span: Span, parts: Parts) -> Seq[t.Expr]:
        return Seq(tuple(parts), span)

    strides = shape

    @rule
    def attributes(self, span: Span, parts: Parts) -> Seq[t.Param]:
        return Seq(parts[0].items, span)

    @rule
    def dims(self, span: Span, parts: Parts) -> Seq[Any]:
        return Seq(tuple(parts), span)

    @rule
    def assumptions(self, span: Span, parts: Parts) -> Seq[t.Assumption]:
        return Seq(tuple(parts), span)

    @rule
    def assumption(self, span: Span, parts: Parts) -> t.Assumption:
        return t.Assumption(parts[0], parts[1], span)

    @rule
    def dim(self, span: Span, parts: Parts) -> NamedSize:
        return NamedSize((parts[0], parts[1]), span)

    def _stage(self, span: Span, parts: Parts, is_let: bool) -> t.Stage:
        name, indices, *annotations, value = parts
        return t.Stage(name, _indices(name, indices), value, _annotations(annotations), is_let, span)

    @rule
    def let_stage(self, span: Span, parts: Parts) -> t.Stage:
        return self._stage(span, parts, True)

    @rule
    def output_stage(self, span: Span, parts: Parts) -> t.Stage:
        return self._stage(span, parts, False)

    def _whole(self, span: Span, parts: Parts, is_let: bool) -> t.Stage:
        name, *annotations, value = parts
        return t.Stage(name, (), value, _annotations(annotations), is_let, span)

    @rule
    def let_whole(self, span: Span, parts: Parts) -> t.Stage:
        return self._whole(span, parts, True)

    @rule
    def output_whole(self, span: Span, parts: Parts) -> t.Stage:
        return self._whole(span, parts, False)

    # --- reducers, intrinsics, targets ---

    @rule
    def reducer(self, span: Span, parts: Parts) -> t.ReducerDef:
        doc, (name, a, b, combine, identity, laws) = _docs(parts)
        return t.ReducerDef(name, (a, b), combine, identity, items(laws), doc, _after_doc(span, parts))

    @rule
    def assume(self, span: Span, parts: Parts) -> Seq[t.Name]:
        return Seq(tuple(t.Name(str(w), w.span) for w in parts), span)

    @rule
    def intrinsic(self, span: Span, parts: Parts) -> t.IntrinsicDef:
        doc, (name, desc, *rest) = _docs(parts)
        return t.IntrinsicDef(
            name, _of(desc.items, t.Operand), _of(desc.items, t.Effect), _of(rest, t.Layout),
            _of(rest, t.Lowering), doc, _after_doc(span, parts),
        )  # fmt: skip

    @rule
    def desc(self, span: Span, parts: Parts) -> Seq[t.Operand | t.Effect]:
        return Seq(tuple(parts), span)

    @rule
    def operand(self, span: Span, parts: Parts) -> t.Operand:
        name, type_, layout = parts
        return t.Operand(name, type_, layout, span)

    def _effect(self, span: Span, parts: Parts, adds: bool) -> t.Effect:
        name, *indices, value = parts
        return t.Effect(name, _indices(name, indices[0]) if indices else (), value, adds, span)

    @rule
    def sets(self, span: Span, parts: Parts) -> t.Effect:
        return self._effect(span, parts, False)

    @rule
    def adds(self, span: Span, parts: Parts) -> t.Effect:
        return self._effect(span, parts, True)

    @rule
    def layout(self, span: Span, parts: Parts) -> t.Layout:
        name, *rest = parts
        params, places = _of(rest, t.Word), _of(rest, Seq)
        return t.Layout(self.text(name, span), params, tuple(p.items for p in places), span)

    @rule
    def place(self, span: Span, parts: Parts) -> Seq[Any]:
        return Seq((parts[0], parts[1]), span)

    @rule
    def lowering(self, span: Span, parts: Parts) -> t.Lowering:
        target, requires, kind, code = parts
        return t.Lowering(target, items(requires), kind, self.text(code, span), span)

    @rule
    def requires(self, span: Span, parts: Parts) -> Seq[str]:
        return Seq(tuple(self.text(p, span) for p in parts), span)

    @rule
    def target(self, span: Span, parts: Parts) -> t.TargetDef:
        doc, (name, kind, facts) = _docs(parts)
        return t.TargetDef(name, kind, items(facts), doc, _after_doc(span, parts))

    # --- constants, modules, spaces, schedules, tasks, uses ---

    @rule
    def const(self, span: Span, parts: Parts) -> t.ConstDef:
        doc, (name, value) = _docs(parts)
        return t.ConstDef(name, value, doc, _after_doc(span, parts))

    @rule
    def module(self, span: Span, parts: Parts) -> t.ModuleDef:
        doc, (name, params, when, body) = _docs(parts)
        return t.ModuleDef(name, items(params), when, body.items, doc, _after_doc(span, parts))

    @rule
    def when(self, span: Span, parts: Parts) -> t.Expr:
        return parts[0]

    @rule
    def params(self, span: Span, parts: Parts) -> Seq[t.Param]:
        return Seq(tuple(parts), span)

    @rule
    def param(self, span: Span, parts: Parts) -> t.Param:
        name, type_, default = parts
        return t.Param(name, type_, default.items[0] if default else None, span)

    @rule
    def param_type(self, span: Span, parts: Parts) -> t.ParamType:
        return parts[0]

    @rule
    def type(self, span: Span, parts: Parts) -> t.ParamType:
        # Parentheses without types in them leave no node of their own.
        name, *types = parts
        empty = () if span.text.endswith(")") else None
        return t.ParamType(name, types[0].items if types and types[0] is not None else empty, span)

    @rule
    def types(self, span: Span, parts: Parts) -> Seq[t.ParamType]:
        return Seq(tuple(parts), span)

    @rule
    def param_default(self, span: Span, parts: Parts) -> Seq[t.Expr]:
        return Seq((parts[0],), span)

    @rule
    def space(self, span: Span, parts: Parts) -> t.SpaceDef:
        doc, (name, target, *rules) = _docs(parts)
        for r in rules:
            if not isinstance(r.function if isinstance(r, t.CallExpr) else r, t.Name):
                raise TschedError(problems.NO_RULE(r.span))
        return t.SpaceDef(name, target, tuple(rules), doc, _after_doc(span, parts))

    @rule
    def schedule(self, span: Span, parts: Parts) -> t.ScheduleDef:
        doc, (name, compute, body) = _docs(parts)
        return t.ScheduleDef(name, compute, body.items, doc, _after_doc(span, parts))

    @rule
    def prior(self, span: Span, parts: Parts) -> t.PriorDef:
        doc, (name, of, *weights) = _docs(parts)
        return t.PriorDef(name, of, tuple(weights), doc, _after_doc(span, parts))

    @rule
    def weighing(self, span: Span, parts: Parts) -> t.Weighing:
        return t.Weighing(parts[0], parts[1], span)

    @rule
    def task(self, span: Span, parts: Parts) -> t.TaskDef:
        doc, (name, compute, bindings, with_) = _docs(parts)
        return t.TaskDef(name, compute, items(bindings), with_, doc, _after_doc(span, parts))

    @rule
    def bindings(self, span: Span, parts: Parts) -> Seq[Any]:
        return Seq(tuple(p.items for p in parts), span)

    @rule
    def binding(self, span: Span, parts: Parts) -> Seq[Any]:
        return Seq((parts[0], parts[1]), span)

    @rule
    def timed(self, span: Span, parts: Parts) -> t.RangeExpr:
        sizes, *at = parts
        return t.RangeExpr(sizes.low, sizes.high, tuple(at), span)

    @rule
    def with_(self, span: Span, parts: Parts) -> t.Word:
        return parts[0]

    @rule
    def use(self, span: Span, parts: Parts) -> t.UseDecl:
        names = _of(parts, Seq)
        return t.UseDecl(_of(parts, t.Word), names[0].items if names else (), span)

    @rule
    def use_names(self, span: Span, parts: Parts) -> Seq[t.Word]:
        return Seq(tuple(parts), span)

    # --- programs ---

    @rule
    def program(self, span: Span, parts: Parts) -> t.ProgramDef:
        doc, (name, params, sizes, *lines) = _docs(parts)
        return t.ProgramDef(
            name, items(params), items(sizes), _of(lines, t.BufferDecl), _of(lines, t.LoopStmt, t.BlockStmt),
            _annotations(lines), doc, _after_doc(span, parts),
        )  # fmt: skip

    @rule
    def sizes(self, span: Span, parts: Parts) -> Seq[Any]:
        return Seq(tuple(p.items for p in parts), span)

    @rule
    def size(self, span: Span, parts: Parts) -> Seq[Any]:
        return Seq((parts[0], parts[1]), span)

    @rule
    def buffer(self, span: Span, parts: Parts) -> t.BufferDecl:
        name, type_, scope, *rest = parts
        return t.BufferDecl(name, type_, scope, _annotations(rest), span)

    @rule
    def scope(self, span: Span, parts: Parts) -> str:
        return self.text(parts[0], span)

    @rule
    def loop_kind(self, span: Span, parts: Parts) -> str:
        return parts[0]

    iterator_kind = lowering_kind = constant = loop_kind

    @rule
    def bound(self, span: Span, parts: Parts) -> Axis:
        return Axis(self.text(parts[0], span), span)

    @rule
    def loop(self, span: Span, parts: Parts) -> t.LoopStmt:
        how, *rest = parts
        axis = how.name if isinstance(how, Axis) else None
        kind = "bound" if axis is not None else how if isinstance(how, str) else "serial"
        return t.LoopStmt(
            kind, axis, _of(rest, t.LoopHeader), _annotations(rest), _of(rest, t.LoopStmt, t.BlockStmt), span
        )

    @rule
    def header(self, span: Span, parts: Parts) -> t.LoopHeader:
        return t.LoopHeader(parts[0], parts[1], span)

    @rule
    def annotation(self, span: Span, parts: Parts) -> Annotation:
        key, value = parts
        return Annotation(self.text(key, span), value, span)

    @rule
    def block(self, span: Span, parts: Parts) -> t.BlockStmt:
        name, *lines = parts
        inits = _of(lines, Init)
        if len(inits) > 1:
            raise TschedError(problems.TWO_INITS(inits[1].span))
        return t.BlockStmt(
            name, _of(lines, t.IterDecl), tuple(g.items[0] for g in _of(lines, Guard)),
            inits[0].items if inits else (), _of(lines, t.StoreStmt), _annotations(lines), span,
        )  # fmt: skip

    @rule
    def iterator(self, span: Span, parts: Parts) -> t.IterDecl:
        kind, name, extent, binding = parts
        return t.IterDecl(kind, name, extent, binding, span)

    @rule
    def guard(self, span: Span, parts: Parts) -> Guard:
        return Guard((parts[0],), span)

    @rule
    def init(self, span: Span, parts: Parts) -> Init:
        return Init(tuple(parts), span)

    @rule
    def store(self, span: Span, parts: Parts) -> t.StoreStmt:
        if len(parts) == 2:
            raise _empty_brackets(parts[0])
        return t.StoreStmt(parts[0], tuple(parts[1:-1]), parts[-1], span)

    @rule
    def store_whole(self, span: Span, parts: Parts) -> t.StoreStmt:
        return t.StoreStmt(parts[0], (), parts[1], span)
