"""Builds items: computes, modules, programs, …; see `syntax.build`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax import errors
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import Token
from tensorc_dsl.syntax.traversal import walk

# What the builders share: the values that rules pass to each other, and the mark of a method that builds a rule.
#
# A builder has one method per rule of `grammar/tsched.lark`. The parser calls a method when it has recognised the rule of
# that name, and passes the values of the rule's parts. Signs and keywords are already removed. A part that is only a list
# is passed as `Seq`.


T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class Seq(Generic[T]):
    """A list without a node of its own."""

    items: tuple[T, ...]
    span: Span


def items(seq: Seq[T] | None) -> tuple[T, ...]:
    """The entries of an optional list; none if the list is missing."""
    return () if seq is None else seq.items


Parts = list[Any]


def rule(method: Callable[[Any, Span, Parts], T]) -> Callable[[Any, Span, Parts], T]:
    """Marks a method that the parser calls for the rule of its name, with the rule's span and its parts without signs."""
    return method


def node(make: Callable[..., T]) -> Callable[[Any, Span, Parts], T]:
    """The method of a rule whose parts are the fields of what it makes, in their order."""
    return lambda _builder, span, parts: make(*parts, span)


def several(make: Callable[[tuple[Any, ...], Span], T]) -> Callable[[Any, Span, Parts], T]:
    """The method of a rule whose parts are the entries of what it makes."""
    return lambda _builder, span, parts: make(tuple(parts), span)


def only(_builder: Any, _span: Span, parts: Parts) -> Any:
    """The method of a rule that adds signs to its one part."""
    return parts[0]


def literal(make: Callable[[T, Span], R], value: T) -> Callable[[Any, Span, Parts], R]:
    """The method of a rule for one word, which is always the same value."""
    return lambda _builder, span, _parts: make(value, span)


# Builds expressions; see `syntax.build`.


@frozen
class Keyword:
    """`key=value` among the arguments of a call."""

    name: t.Word
    value: t.Expr
    span: Span


def no_subscripts(span: Span) -> Diagnostic:
    """The finding for `x[]`: a single value is written by its name alone."""
    return errors.NO_SUBSCRIPTS(span, name=span.text.partition("[")[0].strip())


_new = str.__new__
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(u\{([0-9a-fA-F]{1,6})\}|.)")


class ExprBuilder:
    """The rules of words, literals, operators, calls and index maps."""

    list = several(t.ListExpr)
    entry = index_specs = arguments = parens = several(Seq)
    not_expr, scan, slice, attribute = node(t.NotExpr), node(t.Scan), node(t.SliceExpr), node(t.Attribute)
    keyword = node(Keyword)
    infinity, not_a_number = literal(t.Number, math.inf), literal(t.Number, math.nan)
    true, false = literal(t.Bool, True), literal(t.Bool, False)

    has_tuples = False
    """Whether there were several values in parentheses."""

    def text(self, token: Token, span: Span) -> str:
        """The value of the string literal at the span."""

        def one(m: re.Match[str]) -> str:
            if m[2] is not None:
                code = int(m[2], 16)
                if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:  # lone surrogates are no characters
                    return chr(code)
            elif m[1] in _ESCAPES:
                return _ESCAPES[m[1]]
            place = Span(span.source, token.start_pos + 1 + m.start(), token.start_pos + 1 + m.end())
            raise TschedError(errors.NO_ESCAPE(place, escape=m[0]))

        return _ESCAPE.sub(one, str(token)[1:-1])

    # --- words and literals ---

    @rule
    def name(self, span: Span, parts: Parts) -> t.Word:
        word = _new(t.Word, parts[0])  # the same as `Word`, which is too slow for the most common node
        word.span = span
        return word

    @rule
    def name_expr(self, span: Span, parts: Parts) -> t.Name:
        return t.Name(str(parts[0]), span)

    @rule
    def integer(self, span: Span, parts: Parts) -> t.Number:
        digits = str(parts[0]).lstrip("0") or "0"
        if len(digits) > t.MAX_BITS or int(digits).bit_length() > t.MAX_BITS:
            raise TschedError(errors.TOO_MANY_BITS(span, most=t.MAX_BITS))
        return t.Number(int(digits), span)

    @rule
    def decimal(self, span: Span, parts: Parts) -> t.Number:
        value = float(parts[0])
        if math.isinf(value):
            raise TschedError(errors.TOO_LARGE(span))
        return t.Number(value, span)

    @rule
    def string(self, span: Span, parts: Parts) -> t.String:
        return t.String(self.text(parts[0], span), span)

    @rule
    def wildcard(self, span: Span, parts: Parts) -> t.Wildcard:
        return t.Wildcard(span)

    @rule
    def map(self, span: Span, parts: Parts) -> t.MapExpr:
        return t.MapExpr(tuple((e.items[0], e.items[1]) for e in parts), span)

    # --- operators ---

    @rule
    def binary(self, span: Span, parts: Parts) -> t.BinaryExpr:
        lhs, op, rhs = parts
        return t.BinaryExpr(cast(Any, str(op)), lhs, rhs, span)

    @rule
    def logic(self, span: Span, parts: Parts) -> t.LogicExpr:
        lhs, op, rhs = parts
        return t.LogicExpr(cast(Any, str(op)), lhs, rhs, span)

    @rule
    def compare(self, span: Span, parts: Parts) -> t.CompareExpr:
        ops = cast(Any, tuple(map(str, parts[1::2])))
        return t.CompareExpr(ops, tuple(parts[0::2]), span)

    @rule
    def negate(self, span: Span, parts: Parts) -> t.Negate:
        return t.Negate(parts[1], span)

    @rule
    def conditional(self, span: Span, parts: Parts) -> t.Conditional:
        then, cond, other = parts
        return t.Conditional(cond, then, other, span)

    @rule
    def range(self, span: Span, parts: Parts) -> t.RangeExpr:
        return t.RangeExpr(parts[0], parts[1], (), span)

    @rule
    def reduce(self, span: Span, parts: Parts) -> t.Reduce:
        reducer, indices, body = parts
        return t.Reduce(
            t.Word(reducer, Span(span.source, span.start, span.start + len(reducer))), indices.items, body, span
        )

    @rule
    def reduce_by(self, span: Span, parts: Parts) -> t.Reduce:
        reducer, indices, body = parts
        return t.Reduce(reducer, indices.items, body, span)

    @rule
    def index_spec(self, span: Span, parts: Parts) -> t.IndexSpec:
        return t.IndexSpec(parts[0], parts[1] if len(parts) > 1 else None, span)

    # --- calls, subscripts, parentheses ---

    @rule
    def call(self, span: Span, parts: Parts) -> t.CallExpr:
        function, arguments = parts
        args: Parts = []
        kwargs: Parts = []
        for a in items(arguments):
            if isinstance(a, Keyword):
                kwargs.append((a.name, a.value))
            elif kwargs:
                raise TschedError(errors.NAMELESS_ARGUMENT(a.span))
            else:
                args.append(a)
        return t.CallExpr(function, tuple(args), tuple(kwargs), span)

    @rule
    def index(self, span: Span, parts: Parts) -> t.IndexExpr:
        if len(parts) == 1:
            raise TschedError(no_subscripts(span))
        return t.IndexExpr(parts[0], tuple(parts[1:]), span)

    @rule
    def stepped(self, span: Span, parts: Parts) -> t.SliceExpr:
        raise TschedError(errors.STEPPED(span))

    @rule
    def rest(self, span: Span, parts: Parts) -> t.Rest:
        return t.Rest(span)

    @rule
    def paren(self, span: Span, parts: Parts) -> t.Expr:
        inner = parts[0].items
        if not inner or any(isinstance(e, t.Rest) for e in inner):
            raise TschedError(errors.SEVERAL_VALUES(span))
        if len(inner) == 1:
            return inner[0]
        self.has_tuples = True
        return t.TupleExpr(inner, span)

    @rule
    def lambda_(self, span: Span, parts: Parts) -> t.Lambda:
        sides: list[Seq[t.Expr | t.Rest]] = parts
        rests = [[p for p in side.items if isinstance(p, t.Rest)] for side in sides]
        for side, found, other in zip(sides, rests, reversed(rests), strict=True):
            if len(found) > 1:
                raise TschedError(errors.REST_TWICE(found[1].span))
            if other and not found:
                raise TschedError(errors.REST_MISSING(side.span))
        params: list[t.Word | t.Rest] = []
        for p in sides[0].items:
            match p:
                case t.Rest():
                    params.append(p)
                case t.Name(id=name):
                    params.append(t.Word(name, p.span))
                case _:
                    raise TschedError(errors.NO_PARAMETER(p.span))
        return t.Lambda(tuple(params), sides[1].items, span)


# Builds statements of schedules and modules; see `syntax.build`.


class StmtBuilder(ExprBuilder):
    """The rules of statements, of patterns and of a `for` in a list."""

    body, list_pattern = several(Seq), several(t.ListPattern)
    let, yield_, action = node(t.Let), node(t.Yield), node(t.ExprStmt)
    filter = pin = weight = otherwise = only

    @rule
    def for_list(self, span: Span, parts: Parts) -> t.ForList:
        target, source, *cond, body = parts
        return t.ForList(target, source, cond[0] if cond else None, body.items, span)

    @rule
    def name_pattern(self, span: Span, parts: Parts) -> t.NamePattern:
        return t.NamePattern(str(parts[0]), span)

    @rule
    def draw(self, span: Span, parts: Parts) -> t.DrawStmt:
        name, distribution, pin = parts
        if not isinstance(distribution, t.CallExpr):
            raise TschedError(errors.NO_DISTRIBUTION(distribution.span))
        return t.DrawStmt(name, distribution, pin, span)

    @rule
    def either(self, span: Span, parts: Parts) -> t.Either:
        arms = [p for p in parts if not isinstance(p, str)]
        pairs = zip(arms[0::2], arms[1::2], strict=True)
        branches = (t.Branch(None, w, b.items, w.span.to(b.span) if w else b.span) for w, b in pairs)
        return t.Either(None, tuple(branches), span)

    @rule
    def either_of(self, span: Span, parts: Parts) -> t.Either:
        name, *rest = parts
        branches = tuple(b for b in rest if isinstance(b, t.Branch))
        for n, b in enumerate(branches):
            if b.name in [other.name for other in branches[:n]]:
                raise TschedError(errors.SAME_BRANCH(b.span, name=str(b.name)))
        return t.Either(name, branches, span)

    @rule
    def branch(self, span: Span, parts: Parts) -> t.Branch:
        name, weight, body = parts
        return t.Branch(name, weight, body.items, span)

    @rule
    def maybe(self, span: Span, parts: Parts) -> t.Maybe:
        chance, name, body = parts
        return t.Maybe(name, chance, body.items, span)

    @rule
    def try_(self, span: Span, parts: Parts) -> t.Try:
        body, other = parts
        return t.Try(body.items, items(other), span)

    @rule
    def if_(self, span: Span, parts: Parts) -> t.If:
        cond, then, other = parts
        return t.If(cond, then.items, items(other), span)

    @rule
    def select(self, span: Span, parts: Parts) -> t.Select:
        return t.Select(_of(parts, t.Word), _of(parts, t.Case), span)

    @rule
    def case(self, span: Span, parts: Parts) -> t.Case:
        *sizes, body = parts
        return t.Case(tuple(sizes), body.items, span)

    @rule
    def else_(self, span: Span, parts: Parts) -> Seq[t.Stmt]:
        inner = parts[0]
        return Seq((inner,), span) if isinstance(inner, t.If) else Seq(inner.items, span)


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


def _sizes(parts: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[t.Expr, ...]]:
    """What is behind `where`: the sizes that have a name there, and the conditions."""
    return tuple(x.items for x in parts if isinstance(x, NamedSize)), tuple(
        x for x in parts if not isinstance(x, NamedSize)
    )


@frozen
class Axis:
    """`bound("block.x")`, before a loop."""

    name: str
    span: Span


@frozen
class Annotation:
    """`@("key", value)`."""

    key: str
    value: t.Expr
    span: Span


def _annotations(parts: Parts) -> tuple[tuple[str, t.Expr], ...]:
    return tuple((a.key, a.value) for a in _of(parts, Annotation))


def _selected(parts: Parts) -> t.ProgramSelect | None:
    return next(iter(_of(parts, t.ProgramSelect)), None)


def _empty_brackets(name: t.Word) -> TschedError:
    return TschedError(no_subscripts(replace(name.span, end=name.span.source.text.index("]", name.span.end) + 1)))


def _indices(name: t.Word, indices: Seq[t.IndexSpec] | None) -> tuple[t.IndexSpec, ...]:
    """The indices in the brackets behind a name. Raises TschedError for empty brackets."""
    if indices is None:
        raise _empty_brackets(name)
    return indices.items


@frozen
class Result:
    """One of the places of a tuple, or "_" for a value that is dropped."""

    name: t.Word
    indices: tuple[t.IndexSpec, ...]
    span: Span


def _stray_tuple(file: t.File) -> t.TupleExpr | None:
    """The first tuple that is neither what a reducer combines nor a part of its declaration."""
    allowed: set[int] = set()
    for node in walk(file):
        match node:
            case t.Reduce(body=t.TupleExpr() as e):
                allowed.add(id(e))
            case t.ReducerDef(combine=combine, identity=identity):
                allowed |= {id(combine), id(identity)}
            case t.TupleExpr() if id(node) not in allowed:
                return node
            case _:
                pass
    return None


class Init(Seq[t.StoreStmt]):
    pass


class NamedSize(Seq[Any]):
    """`M = N / 2` or `M in 1..64`, behind `where`."""


class Guard(Seq[t.Expr]):
    pass


class FileBuilder(StmtBuilder):
    """The rules of items, and of all that stands in them beside statements and expressions."""

    tensor_params = outputs = shape = strides = dims = sizes = assumptions = desc = params = types = use_names = (
        several(Seq)
    )
    place = binding = param_default = operands = occurring = several(Seq)
    dim, size, guard, init = several(NamedSize), several(NamedSize), several(Guard), several(Init)
    assumption, weighing, operand = node(t.Assumption), node(t.Weighing), node(t.Operand)
    header, iterator = node(t.LoopHeader), node(t.IterDecl)
    updates = when = param_type = with_ = only

    @rule
    def file(self, span: Span, parts: Parts) -> t.File:
        file = t.File(span.source, tuple(parts))
        if self.has_tuples:
            self.has_tuples = False
            if stray := _stray_tuple(file):
                raise TschedError(errors.SEVERAL_VALUES(stray.span))
        return file

    # --- compute ---

    @rule
    def compute(self, span: Span, parts: Parts) -> t.ComputeDef:
        doc, (name, inputs, attributes, outputs, dims, assumptions, *stages) = _docs(parts)
        named, conditions = _sizes(items(dims))
        return t.ComputeDef(
            name, items(inputs), items(attributes), outputs.items, named, conditions, items(assumptions), tuple(stages),
            doc, _after_doc(span, parts),
        )  # fmt: skip

    @rule
    def tensor_param(self, span: Span, parts: Parts) -> t.TensorParam:
        name, constant, type_, strides, updates = parts
        return t.TensorParam(name, type_, constant is not None, items(strides), updates, span)

    @rule
    def tensor_type(self, span: Span, parts: Parts) -> t.TensorType:
        if parts[1] is not None and not parts[1].items:
            raise TschedError(no_subscripts(span))
        return t.TensorType(parts[0], items(parts[1]), span)

    @rule
    def attributes(self, span: Span, parts: Parts) -> Seq[t.Param]:
        return Seq(parts[0].items, span)

    def _stage(self, span: Span, parts: Parts, is_let: bool) -> t.Stage:
        name, indices, *annotations, value = parts
        return t.Stage(name, _indices(name, indices), value, _annotations(annotations), is_let, (), (), span)

    @rule
    def let_stage(self, span: Span, parts: Parts) -> t.Stage:
        return self._stage(span, parts, True)

    @rule
    def output_stage(self, span: Span, parts: Parts) -> t.Stage:
        return self._stage(span, parts, False)

    def _whole(self, span: Span, parts: Parts, is_let: bool) -> t.Stage:
        name, *annotations, value = parts
        return t.Stage(name, (), value, _annotations(annotations), is_let, (), (), span)

    @rule
    def let_whole(self, span: Span, parts: Parts) -> t.Stage:
        return self._whole(span, parts, True)

    @rule
    def output_whole(self, span: Span, parts: Parts) -> t.Stage:
        return self._whole(span, parts, False)

    @rule
    def result(self, span: Span, parts: Parts) -> Result:
        name, *indices = parts
        return Result(name, _indices(name, indices[0]) if "[" in span.text else (), span)

    @rule
    def dropped(self, span: Span, parts: Parts) -> Result:
        return Result(t.Word("_", span), (), span)

    def _tuple(self, span: Span, parts: Parts, is_let: bool) -> t.Stage:
        results: tuple[Result, ...] = _of(parts, Result)
        named = [r for r in results if r.name != "_"]
        if not named:
            raise TschedError(errors.UNEVEN_RESULTS(span, reason="each of them is dropped"))
        first = named[0]
        for r in named[1:]:
            if [i.name for i in r.indices] != [i.name for i in first.indices]:
                reason = f"`{r.name}` has other subscripts than `{first.name}`"
                raise TschedError(errors.UNEVEN_RESULTS(r.span, reason=reason))
            if any(i.extent is not None for i in r.indices):
                reason = f"the ranges of the subscripts are said at `{first.name}`"
                raise TschedError(errors.UNEVEN_RESULTS(r.span, reason=reason))
        targets = tuple(r.name for r in results)
        repeated = tuple(i.name for r in named[1:] for i in r.indices)
        return t.Stage(first.name, first.indices, parts[-1], _annotations(parts[:-1]), is_let, targets, repeated, span)

    @rule
    def let_tuple(self, span: Span, parts: Parts) -> t.Stage:
        return self._tuple(span, parts, True)

    @rule
    def output_tuple(self, span: Span, parts: Parts) -> t.Stage:
        return self._tuple(span, parts, False)

    # --- reducers, intrinsics, targets ---

    @rule
    def reducer(self, span: Span, parts: Parts) -> t.ReducerDef:
        doc, (name, a, b, combine, identity, laws) = _docs(parts)
        return t.ReducerDef(name, a.items, b.items, combine, identity, items(laws), doc, _after_doc(span, parts))

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
    def param(self, span: Span, parts: Parts) -> t.Param:
        name, type_, default = parts
        return t.Param(name, type_, default.items[0] if default else None, span)

    @rule
    def type(self, span: Span, parts: Parts) -> t.ParamType:
        # Parentheses without types in them leave no node of their own.
        name, *types = parts
        empty = () if span.text.endswith(")") else None
        return t.ParamType(name, types[0].items if types and types[0] is not None else empty, span)

    @rule
    def space(self, span: Span, parts: Parts) -> t.SpaceDef:
        doc, (name, target, *rules) = _docs(parts)
        for r in rules:
            if not isinstance(r.function if isinstance(r, t.CallExpr) else r, t.Name):
                raise TschedError(errors.NO_RULE(r.span))
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
    def task(self, span: Span, parts: Parts) -> t.TaskDef:
        doc, (name, compute, bindings, occurring, with_) = _docs(parts)
        return t.TaskDef(name, compute, items(bindings), items(occurring), with_, doc, _after_doc(span, parts))

    @rule
    def model(self, span: Span, parts: Parts) -> t.ModelDef:
        doc, (name, inputs, outputs, weights, *calls) = _docs(parts)
        return t.ModelDef(name, items(inputs), outputs.items, weights, tuple(calls), doc, _after_doc(span, parts))

    @rule
    def weights(self, span: Span, parts: Parts) -> t.Weights:
        path, sha256, tensors = parts
        return t.Weights(self.text(path, span), self.text(sha256, span), items(tensors), span)

    @rule
    def bindings(self, span: Span, parts: Parts) -> Seq[Any]:
        return Seq(tuple(p.items for p in parts), span)

    @rule
    def timed(self, span: Span, parts: Parts) -> t.RangeExpr:
        sizes, *at = parts
        return t.RangeExpr(sizes.low, sizes.high, tuple(at), span)

    @rule
    def like(self, span: Span, parts: Parts) -> t.RangeExpr:
        sizes, weights = parts
        return t.RangeExpr(sizes.low, sizes.high, (), span, weights)

    @rule
    def use(self, span: Span, parts: Parts) -> t.UseDecl:
        names = _of(parts, Seq)
        return t.UseDecl(_of(parts, t.Word), names[0].items if names else (), span)

    # --- programs ---

    @rule
    def program(self, span: Span, parts: Parts) -> t.ProgramDef:
        doc, (name, params, sizes, *lines) = _docs(parts)
        return t.ProgramDef(
            name, items(params), *_sizes(items(sizes)), _of(lines, t.BufferDecl), _of(lines, t.LoopStmt, t.BlockStmt),
            _annotations(lines), _selected(lines), doc, _after_doc(span, parts),
        )  # fmt: skip

    @rule
    def program_select(self, span: Span, parts: Parts) -> t.ProgramSelect:
        return t.ProgramSelect(_of(parts, t.Word), _of(parts, t.ProgramCase), span)

    @rule
    def program_case(self, span: Span, parts: Parts) -> t.ProgramCase:
        lines = (t.BufferDecl, t.LoopStmt, t.BlockStmt, Annotation, t.ProgramSelect)
        sizes = tuple(p for p in parts if not isinstance(p, lines))
        return t.ProgramCase(
            sizes, _of(parts, t.BufferDecl), _of(parts, t.LoopStmt, t.BlockStmt), _annotations(parts), _selected(parts),
            span,
        )  # fmt: skip

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
    def annotation(self, span: Span, parts: Parts) -> Annotation:
        key, value = parts
        return Annotation(self.text(key, span), value, span)

    @rule
    def block(self, span: Span, parts: Parts) -> t.BlockStmt:
        name, *lines = parts
        inits = _of(lines, Init)
        if len(inits) > 1:
            raise TschedError(errors.TWO_INITS(inits[1].span))
        return t.BlockStmt(
            name, _of(lines, t.IterDecl), tuple(g.items[0] for g in _of(lines, Guard)),
            inits[0].items if inits else (), _of(lines, t.StoreStmt), _annotations(lines), span,
        )  # fmt: skip

    @rule
    def store(self, span: Span, parts: Parts) -> t.StoreStmt:
        if len(parts) == 2:
            raise _empty_brackets(parts[0])
        return t.StoreStmt(parts[0], tuple(parts[1:-1]), parts[-1], span)

    @rule
    def store_whole(self, span: Span, parts: Parts) -> t.StoreStmt:
        return t.StoreStmt(parts[0], (), parts[1], span)
