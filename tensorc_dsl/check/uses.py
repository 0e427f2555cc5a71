"""Imports the items of used files, with their calls rewritten so that names of the user's file cannot capture them.

A module of a used file has a full name (`std.cpu.register_tile`), by which the items of that file call it. No name that a
user can write has that form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tensorc_dsl.check.problems import UNRESOLVED
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.resources import stdlib_files, stdlib_names
from tensorc_dsl.source import Source, Span
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """The files that the path of a `use` stands for: one, or all of a folder; none if there is no such path.

    `name` is the prefix of the full names of their modules, whichever file uses them.
    """

    name: str
    sources: tuple[Source, ...] = ()


Resolve = Callable[[tuple[str, ...], Source], Found]
"""From the path of a `use`, and the file that it stands in, to files. Raises TschedError, without a span, if it fails."""


def standard(path: tuple[str, ...], _user: Source) -> Found:
    """The files of the standard library behind a path; none if the path does not begin with `std`.

    Raises TschedError (E0232) if the library does not have the path.
    """
    files = standard_files(path) if path[0] == "std" else ()
    return Found(".".join(path), tuple(Source.read(file, name) for name, file in files))


def standard_files(path: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    """The files of the standard library behind a path, each with its name in messages.

    Raises TschedError (E0232) if the library does not have the path.
    """
    files = stdlib_files(path[1:])
    if not files:
        notes = near(path[-1], stdlib_names(path[1:-1]))
        raise TschedError(UNRESOLVED(None, notes=notes, path=".".join(path)))
    return files


def with_values(item: T, values: Mapping[str, t.Expr]) -> T:
    """The item with what constants stand for in place of their names. Nothing in it binds one of these names again."""

    def go(value: Any) -> Any:
        match value:
            case tuple():
                return tuple(go(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
            case t.Name(id=name):
                return replace(values[name], span=value.span) if name in values else value
            case t.CallExpr(function=t.Name(), args=args, kwargs=kwargs):
                return replace(value, args=go(args), kwargs=go(kwargs))
            case t.SpaceDef(rules=rules):
                return replace(value, rules=tuple(r if isinstance(r, t.Name) else go(r) for r in rules))
            case _ if not is_dataclass(value) or isinstance(value, type | Span | Source):
                return value
            case _:
                return replace(value, **{f.name: go(getattr(value, f.name)) for f in fields(value)})

    return go(item)


def with_full_names(item: T, names: Mapping[str, str]) -> T:
    """The item with full names in every call of a module and every rule of a space."""

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
