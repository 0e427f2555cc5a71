"""Formats the Python signatures of declarations in the syntax of the language."""

from __future__ import annotations

import inspect
import types
import typing

from tensorc_dsl.ir.expr import Const
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.refs import BlockPattern, BlockRef, BufferRef, IndexMap, LoopPattern, LoopRef
from tensorc_dsl.syntax.format_expr import quoted
from tensorc_dsl.trace.declare import Choices, Interval, Items

_NAMES: dict[object, str] = {
    LoopRef: "Loop", BlockRef: "Block", BufferRef: "Buffer", Program: "Program", IndexMap: "index map",
    int: "int", float: "float", str: "str", bool: "bool", Const: "int", Interval: "lo..hi",
    LoopPattern: "pattern", BlockPattern: "pattern", Choices: "list or map of weights", Items: "list", type(None): "Program",
}  # fmt: skip


def type_text(annotation: object) -> str:
    """The type's name in the reference. Raises KeyError for a type without a name.

    None stands for the whole program or, in a list, for an open factor.
    """
    if len(_alternatives(annotation)) > 1:
        return " or ".join(dict.fromkeys(type_text(part) for part in _alternatives(annotation)))
    if typing.get_origin(annotation) is tuple:
        element = typing.get_args(annotation)[0]
        return f"[{' or '.join('_' if a is type(None) else type_text(a) for a in _alternatives(element))}]"
    return _NAMES[annotation]


def _alternatives(annotation: object) -> tuple[object, ...]:
    """The members of a union type; the type itself if it is none."""
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    return typing.get_args(annotation) if union else (annotation,)


def default_text(value: object) -> str:
    match value:
        case None:
            return "_"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case _:
            return str(value)


def parameters(signature: inspect.Signature) -> str:
    """`loop: Loop, factors: [int or _], *, partial: bool = false`."""
    out: list[str] = []
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in out and not any(x.startswith("*") for x in out):
            out.append("*")
        star = "*" if p.kind is p.VAR_POSITIONAL else ""
        optional = p.default is None
        annotation = p.annotation
        text = f"{star}{p.name}: {_without_none(annotation) if optional else type_text(annotation)}"
        has_default = p.default is not p.empty and not optional
        out.append(f"{text} = {default_text(p.default)}" if has_default else f"[{text}]" if optional else text)
    return ", ".join(out)


def _without_none(annotation: object) -> str:
    """The annotation without None, for parameters that are optional."""
    return " or ".join(type_text(a) for a in _alternatives(annotation) if a is not type(None))
