"""From the language's values to a primitive's parameters, by the primitive's own declared signature."""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import dataclass

from tensorc_dsl.interp.values import OpenFactor, ProgramRef, Value, error, kind_of, plain
from tensorc_dsl.ir.expr import Const, index
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.schedule.places import the_block
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, IndexMap, LoopRef
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.source import Span
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments for the function, and as they were written (with the provenance of drawn values) for the trace."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    code_args: tuple[Value, ...]
    code_kwargs: dict[str, Value]


def _members(annotation: object) -> tuple[object, ...]:
    """The alternatives of a union, aliases opened."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return tuple(m for part in typing.get_args(annotation) for m in _members(part))
    return (annotation,)


_NAMES: dict[object, str] = {
    LoopRef: "a loop", BlockRef: "a block", BufferRef: "a buffer", IndexMap: "an index map", int: "an int",
    float: "a float", str: "a string", bool: "a bool", type(None): "`_`", Const: "an int",
}  # fmt: skip


def describe(annotation: object) -> str:
    """What messages call the type of a parameter."""
    names: list[str] = []
    for m in _members(annotation):
        if typing.get_origin(m) is tuple:
            names.append(f"a list of {describe(typing.get_args(m)[0])}")
        elif m in _NAMES:
            names.append(_NAMES[m])
    return " or ".join(dict.fromkeys(names))


_NO = object()


def _convert(value: Value, annotation: object, program: Program) -> object:
    """The value as the parameter wants it; `_NO` where it does not fit."""
    members = _members(annotation)
    match value:
        case BlockRef() if BlockRef not in members and BufferRef in members:
            return BufferRef(the_block(program, value)[1].body[0].buffer)
        case BufferRef(name=name) if BufferRef not in members and BlockRef in members:
            writers = [b.name for b in blocks(program) if any(s.buffer == name for s in b.body)]
            return BlockRef(writers[0]) if len(writers) == 1 else _NO
        case LoopRef() | BlockRef() | BufferRef() | IndexMap():
            return value if type(value) in members else _NO
        case OpenFactor() | ProgramRef() | None:
            return None if type(None) in members else _NO
        case bool():
            return value if bool in members else _NO
        case int():
            if int in members:
                return value
            return index(value) if Const in members else _NO
        case float() | str():
            return value if type(value) in members else _NO
        case tuple():
            for m in members:
                if typing.get_origin(m) is tuple:
                    element = typing.get_args(m)[0]
                    parts = [_convert(v, element, program) for v in value]
                    if not any(p is _NO for p in parts):
                        return tuple(parts)
            return _NO
        case _:
            return _NO


def _splat(values: list[Value]) -> list[Value]:
    """Lists among the arguments of a variadic parameter stand for their elements."""
    out: list[Value] = []
    for v in values:
        out.extend(_splat(list(v)) if isinstance(v, tuple) else [v])
    return out


def bind_primitive(
    name: str, args: list[Value], kwargs: dict[str, Value], program: Program, call: tree.CallExpr
) -> Bound:
    """Match the arguments with the signature, or raise a TschedError that names the parameter."""
    signature = PRIMITIVES[name].signature
    parameters = list(signature.parameters.values())
    fixed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        args = args[: len(fixed)] + _splat(args[len(fixed) :])
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        text = ", ".join(str(p).split(":")[0].split("=")[0].strip() for p in parameters)
        raise error("E0542", f"`{name}` {_reason(problem)}", call.span, help=f"{name}({text})") from None
    spans: dict[str, Span] = {k: v.span for k, v in call.kwargs}
    spans |= {p.name: a.span for p, a in zip(fixed, call.args, strict=False)}
    out_args: list[object] = []
    out_kwargs: dict[str, object] = {}

    def convert(p: inspect.Parameter, value: Value) -> object:
        result = _convert(plain(value), p.annotation, program)
        if result is _NO:
            message = f"`{name}` takes {describe(p.annotation)} for `{p.name}`; this is {kind_of(value)}"
            raise error("E0543", message, spans.get(p.name, call.span))
        return result

    for p in parameters:
        if p.name not in bound.arguments:
            continue
        value = bound.arguments[p.name]
        if p.kind is p.VAR_POSITIONAL:
            out_args.extend(convert(p, v) for v in value)
        elif p.kind is p.KEYWORD_ONLY:
            out_kwargs[p.name] = convert(p, value)
        else:
            out_args.append(convert(p, value))
    return Bound(tuple(out_args), out_kwargs, tuple(args), kwargs)


def _reason(problem: TypeError) -> str:
    text = str(problem)
    return text if text.startswith(("missing", "got", "multiple", "too many")) else f"does not take these: {text}"
