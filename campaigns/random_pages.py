"""Reads random arguments from the cases of a primitive: values that a kind does not determine, and steps before it.

A new primitive has its cases in `tests/primitives/`, so it is drawn without changes elsewhere. `random_hints` finds
better arguments in a program at hand.
"""

from __future__ import annotations

import re
import typing
from functools import cache
from pathlib import Path

from tensorc_dsl.base.source import Source
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "primitives"

_CALL = re.compile(r"^```call\n(.*?)^```\n\n```(\w+)$", re.MULTILINE | re.DOTALL)


class _NoLiteral(Exception):
    """An argument that names something of the program."""


def _literal(e: tree.Expr) -> typing.Any:
    match e:
        case tree.Number(value=value) | tree.String(value=value) | tree.Bool(value=value):
            return value
        case tree.Negate(operand=tree.Number(value=value)):
            return -value
        case tree.Wildcard():
            return None
        case tree.ListExpr(items=items):
            return tuple(map(_literal, items))
        case _:
            raise _NoLiteral


@cache
def _cases(name: str) -> tuple[tuple[tuple[tree.CallExpr, ...], bool], ...]:
    """The steps of each case of a primitive, and whether the last one is accepted."""
    page = FOLDER / f"{name}.md"
    out: list[tuple[tuple[tree.CallExpr, ...], bool]] = []
    for call, outcome in _CALL.findall(page.read_text(encoding="utf-8") if page.is_file() else ""):
        (item,) = parse(Source(page.name, f"schedule case for it {{\n{call}}}\n")).items
        assert isinstance(item, tree.ScheduleDef)
        steps = [s.value for s in item.body if isinstance(s, tree.ExprStmt)]
        out.append((tuple(s for s in steps if isinstance(s, tree.CallExpr)), outcome != "error"))
    return tuple(out)


def _name(call: tree.CallExpr) -> str:
    assert isinstance(call.function, tree.Name)
    return call.function.id


@cache
def examples(name: str, parameter: str) -> tuple[typing.Any, ...]:
    """The literal values that a parameter has in the cases of its primitive, those of refused ones included."""
    found: list[typing.Any] = []
    signature = PRIMITIVES[name].signature
    for call in (s for steps, _ in _cases(name) for s in steps if _name(s) == name):
        try:
            bound = signature.bind_partial(*call.args, **dict(call.kwargs)).arguments
        except TypeError:  # a case of wrong arguments
            continue
        if isinstance(argument := bound.get(parameter), tree.Expr):
            try:
                found.append(_literal(argument))
            except _NoLiteral:
                continue
    return tuple(found)


@cache
def ways(name: str) -> tuple[tuple[str, ...], ...]:
    """The steps before it in the accepted cases of a primitive, where there are any."""
    found = [tuple(map(_name, steps[:-1])) for steps, accepted in _cases(name) if accepted and _name(steps[-1]) == name]
    return tuple(dict.fromkeys(way for way in found if way))
