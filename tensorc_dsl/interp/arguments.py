"""Binds values of the language to the parameters of primitives, draws, queries and modules, by their signatures."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.builtins import elements
from tensorc_dsl.interp.problems import ARGUMENT_KIND, STEP_ARGUMENTS, fail
from tensorc_dsl.interp.values import AnyRankMap, ModuleRef, OpenFactor, ProgramRef, Value, Weights, bare, kind_of
from tensorc_dsl.ir.expr import Const, index
from tensorc_dsl.ir.node import by_identity
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.nests import the_block, the_buffer
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.refs import BlockPattern, BlockRef, BufferRef, IndexMap, IntrinsicRef, LoopPattern, LoopRef
from tensorc_dsl.schedule.trace.declare import Choices, Interval, Items
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments for the function, and the same with the formulas of drawn values for the trace."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    code_args: tuple[Value, ...]
    code_kwargs: dict[str, Value]


@lru_cache(maxsize=512)
def _members(annotation: object) -> tuple[object, ...]:
    """The alternatives of a union type, with aliases resolved."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return tuple(m for part in typing.get_args(annotation) for m in _members(part))
    return (annotation,)


_NAMES: dict[object, str] = {
    LoopRef: "a loop", BlockRef: "a block", BufferRef: "a buffer", IndexMap: "an index map", int: "an int",
    float: "a float", str: "a string", bool: "a bool", type(None): "`_`", Const: "an int", ProgramRef: "the program",
    Target: "a target", IntrinsicRef: "an instruction", Interval: "a range `lo..hi`", Items: "a list", list: "a list",
    Choices: "a list of numbers, strings or bools, or a map from them to weights", ModuleRef: "a module",
    LoopPattern: "a pattern", BlockPattern: "a pattern",
}  # fmt: skip


def describe(annotation: object) -> str:
    """The name of a parameter's type in messages."""
    names: list[str] = []
    for m in _members(annotation):
        if typing.get_origin(m) is tuple:
            names.append(f"a list of {describe(typing.get_args(m)[0])}")
        elif m in _NAMES:
            names.append(_NAMES[m])
    return " or ".join(dict.fromkeys(names))


_NO = object()
_TEXTS = (IntrinsicRef, LoopPattern, BlockPattern)
"""Types of strings that have a meaning of their own."""


def convert(value: Value, annotation: object, program: Program) -> object:
    """The value converted for a parameter of that type; a result for which `unfit` holds means that it does not fit."""
    members = _members(annotation)
    value = bare(value)
    match value:
        case BlockRef() if BlockRef not in members and BufferRef in members:
            return BufferRef(the_block(program, value)[1].body[0].buffer)
        case BufferRef(name=name) if BufferRef not in members and BlockRef in members:
            writers = [b.name for b in blocks(program) if any(s.buffer == name for s in b.body)]
            return BlockRef(writers[0]) if len(writers) == 1 else _NO
        case LoopRef() | BlockRef() | BufferRef() | IndexMap() | AnyRankMap() | Interval() | Target() | ModuleRef():
            return value if type(value) in members else _NO
        case IntrinsicRef():
            return value if IntrinsicRef in members else convert(str(value), annotation, program)
        case ProgramRef() if ProgramRef in members:
            return value
        case ProgramRef():
            # If a step takes a block or None, None means the whole program.
            return None if BlockRef in members and type(None) in members else _NO
        case OpenFactor() | None:
            return None if type(None) in members else _NO
        case bool():
            return value if bool in members else _NO
        case int():
            if int in members:
                return value
            if Const in members:
                return index(value)
            return float(value) if float in members and abs(value) < 1 << 1000 else _NO
        case str() if str not in members and (named := [m for m in _TEXTS if m in members]):
            return named[0](value)
        case float() | str():
            return value if type(value) in members else _NO
        case Weights(items=items):
            return _choices(items) if Choices in members else _NO
        case tuple():
            return _convert_list(value, members, program)


def _convert_list(values: tuple[Value, ...], members: tuple[object, ...], program: Program) -> object:
    if Items in members:
        return Items(values)
    if Choices in members:
        return _choices(tuple((v, 1.0) for v in values))
    if list in members:
        return values
    for m in members:
        if typing.get_origin(m) is tuple:
            element = typing.get_args(m)[0]
            parts = [convert(v, element, program) for v in values]
            if not any(p is _NO for p in parts):
                return tuple(parts)
    return _NO


def _choices(items: tuple[tuple[Value, Value], ...]) -> object:
    values: list[int | float | str | bool] = []
    weights: list[float] = []
    for value, weight in items:
        v, w = bare(value), bare(weight)
        if not isinstance(v, int | float | str) or not isinstance(w, int | float) or isinstance(w, bool):
            return _NO
        values.append(v)
        weights.append(float(w) if abs(w) < 1 << 1000 else float("inf"))
    return Choices(tuple(values), tuple(weights))


def unfit(converted: object) -> bool:
    return converted is _NO


def splat(value: Value) -> list[Value]:
    """The elements of a list that is an argument of a variadic parameter; other values by themselves."""
    inner = elements(value)
    return [value] if inner is None else [x for v in inner for x in splat(v)]


def _flat(value: Value) -> list[Value]:
    """As `splat`, but a list that was drawn as a whole stays whole, since a trace refers to it by name."""
    return [x for v in value for x in _flat(v)] if isinstance(value, tuple) else [value]


def usage(name: str, signature: inspect.Signature) -> str:
    """The call's form as text: `split(loop, factors, partial)`."""
    text = ", ".join(f"…{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in signature.parameters.values())
    return f"{name}({text})"


def argument_spans(signature: inspect.Signature, call: tree.CallExpr) -> dict[str, Span]:
    """The place of the argument of each parameter that has one."""
    fixed = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    spans = {name: a.span for name, a in zip(fixed, call.args, strict=False)}
    return spans | {name: a.span for name, a in call.kwargs}


class Misfit(Protocol):
    """A problem of arguments that do not fit what is called."""

    def __call__(self, span: Span | None, *, name: str, reason: str, usage: str) -> Diagnostic: ...


def of_known_rank(
    args: list[Value], kwargs: dict[str, Value], signature: inspect.Signature, program: Program
) -> tuple[list[Value], dict[str, Value]]:
    """The arguments with `...` of index maps written out: they map the indices of the buffer that the first argument is, or
    the iterators of the block.
    """
    if not any(isinstance(v, AnyRankMap) for v in (*args, *kwargs.values())):
        return args, kwargs
    subject = next(iter(signature.parameters.values()))
    given = args[0] if args else kwargs.get(subject.name)
    match convert(given, subject.annotation, program):
        case BufferRef() as buffer:
            rank = len(the_buffer(program, buffer).shape)
        case BlockRef() as block:
            rank = len(the_block(program, block)[1].iters)
        case _:
            return args, kwargs  # it is told that it does not fit

    def known(v: Value) -> Value:
        return v.of(rank) if isinstance(v, AnyRankMap) else v

    return [known(a) for a in args], {key: known(v) for key, v in kwargs.items()}


@dataclass(frozen=True, slots=True)
class _Shape:
    """What binding needs of a signature: the number of parameters that have positions, and of those that need arguments."""

    parameters: tuple[inspect.Parameter, ...]
    names: tuple[str, ...]
    fixed: int
    required: int
    is_variadic: bool


@by_identity(1024)
def _shape(signature: inspect.Signature) -> _Shape:
    parameters = tuple(signature.parameters.values())
    fixed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [n for n, p in enumerate(parameters, 1) if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    names = tuple(p.name for p in parameters)
    return _Shape(parameters, names, len(fixed), max(needed, default=0), is_variadic)


def bind(
    name: str,
    signature: inspect.Signature,
    args: list[Value],
    kwargs: dict[str, Value],
    program: Program,
    call: tree.CallExpr,
    declared: Misfit,
) -> Bound:
    """The arguments for a signature. Raises `declared` if they do not match; a TschedError for a value of a wrong kind."""
    shape = _shape(signature)
    parameters, fixed = shape.parameters, shape.fixed
    own, rest = args[:fixed], args[fixed:]
    code = tuple(args)
    if shape.is_variadic:
        code = (*own, *(x for v in rest for x in _flat(v)))
        rest = [x for v in rest for x in splat(v)]
    if not kwargs and not rest and len(own) >= shape.required:  # as most are; `bind` takes as long as a small step
        arguments: Mapping[str, Any] = dict(zip(shape.names, own, strict=False))
    else:
        try:
            arguments = signature.bind(*own, *rest, **kwargs).arguments
        except TypeError as e:
            raise TschedError(declared(call.span, name=name, reason=_reason(e), usage=usage(name, signature))) from None
    out_args: list[object] = []
    out_kwargs: dict[str, object] = {}
    left_out = False

    def fitting(p: inspect.Parameter, value: Value) -> object:
        result = convert(value, p.annotation, program)
        if result is _NO:
            raise fail(
                ARGUMENT_KIND,
                argument_spans(signature, call).get(p.name, call.span),
                name=name,
                wanted=describe(p.annotation),
                parameter=p.name,
                found=kind_of(value),
            )
        return result

    for p in parameters:
        if p.name not in arguments:
            left_out = True
            continue
        value = arguments[p.name]
        if p.kind is p.VAR_POSITIONAL:
            out_args.extend(fitting(p, v) for v in value)
        elif p.kind is p.KEYWORD_ONLY or left_out:  # after a parameter without an argument, positions would shift
            out_kwargs[p.name] = fitting(p, value)
        else:
            out_args.append(fitting(p, value))
    return Bound(tuple(out_args), out_kwargs, code, kwargs)


def bind_primitive(
    name: str, args: list[Value], kwargs: dict[str, Value], program: Program, call: tree.CallExpr
) -> Bound:
    """The arguments of a primitive. Raises TschedError."""
    return bind(name, PRIMITIVES[name].signature, args, kwargs, program, call, STEP_ARGUMENTS)


def _reason(problem: TypeError) -> str:
    text = str(problem)
    return text if text.startswith(("missing", "got", "multiple", "too many")) else f"does not take these: {text}"
