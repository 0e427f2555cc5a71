"""Imports the items of used files, with their calls rewritten so that names of the user's file cannot capture them.

A module of a used file has a full name (`std.cpu.register_tile`), by which the items of that file call it. No name that a
user can write has that form.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.resources import stdlib_files, stdlib_names
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.problems import UNRESOLVED
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.traversal import rewrite_tree, walk

T = TypeVar("T")


@frozen
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

    def new(node: Any) -> Any:
        match node:
            case t.Name(id=name) if name in values:
                return replace(values[name], span=node.span)
            case t.CallExpr(function=t.Name() as function):
                return _called(node, function, new)
            case t.SpaceDef(rules=rules):
                return replace(node, rules=tuple(r if isinstance(r, t.Name) else rewrite_tree(r, new) for r in rules))
            case _:
                return None

    return rewrite_tree(item, new)


def bound_names(item: t.ModuleDef | t.ScheduleDef) -> frozenset[str]:
    """The names that an item binds anywhere: as values, they do not mean modules in it."""
    found: set[str] = set()
    for node in walk(item):
        match node:
            case t.Param(name=name) | t.DrawStmt(name=t.NamePattern(name=name)):
                found.add(name)
            case t.Let(pattern=pattern) | t.ForList(target=pattern):
                found |= {n.name for n in (pattern.items if isinstance(pattern, t.ListPattern) else (pattern,))}
            case t.Lambda(params=params):
                found |= {p for p in params if not isinstance(p, t.Rest)}
            case _:
                pass
    return frozenset(found)


def with_full_names(item: T, names: Mapping[str, str], bound: Callable[[], Container[str]]) -> T:
    """The item with full names in every call of a module, every rule of a space, and for every module that is a value.

    `bound` gives the names that mean something else as values. It is asked if one of `names` is a value: few items have one.
    """

    def named(e: t.Expr) -> t.Expr:
        return replace(e, id=names.get(e.id, e.id)) if isinstance(e, t.Name) else rewrite_tree(e, new)

    def new(node: Any) -> Any:
        match node:
            case t.CallExpr(function=function):
                return _called(node, named(function), new)
            case t.Name(id=name) if name in names and name not in bound():
                return replace(node, id=names[name])
            case t.SpaceDef(rules=rules):
                return replace(node, rules=tuple(map(named, rules)))
            case _:
                return None

    return rewrite_tree(item, new)


def _called(call: t.CallExpr, function: t.Expr, new: Callable[[Any], Any]) -> t.CallExpr:
    """The call of the function, with its arguments rewritten."""
    kwargs = tuple((key, rewrite_tree(value, new)) for key, value in call.kwargs)
    return replace(call, function=function, args=tuple(rewrite_tree(a, new) for a in call.args), kwargs=kwargs)
