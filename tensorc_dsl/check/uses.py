"""What a `use` brings: items of other files, their own calls rewritten so that no name of the user's can capture them.

A module of a used file has a full name (`std.cpu.register_tile`), by which the items of that file call it; nothing that a
user can write is spelled like that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tensorc_dsl.resources import stdlib_files
from tensorc_dsl.source import Source, Span
from tensorc_dsl.syntax import tree as t

T = TypeVar("T")


def standard(path: tuple[str, ...]) -> tuple[Source, ...]:
    """The files that `use std.…` means: one, or all of a folder; none for other paths."""
    if path[0] != "std":
        return ()
    return tuple(Source.read(file, name) for name, file in stdlib_files(path[1:]))


def with_full_names(item: T, names: Mapping[str, str]) -> T:
    """The item with every call of a module, and every rule of a space, by its full name."""

    def named(e: t.Expr) -> t.Expr:
        return replace(e, id=names.get(e.id, e.id)) if isinstance(e, t.Name) else e

    def go(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(go(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        if not is_dataclass(value) or isinstance(value, type | Span | Source):
            return value
        match value:
            case t.CallExpr(function=function):
                value = replace(value, function=named(function))
            case t.SpaceDef(rules=rules):
                value = replace(value, rules=tuple(map(named, rules)))
            case _:
                pass
        return replace(value, **{f.name: go(getattr(value, f.name)) for f in fields(value)})

    return go(item)
