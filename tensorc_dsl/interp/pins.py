"""Decisions from outside of a file: `ks=[64, 16]` has the meaning of the pin `:= [64, 16]`, `ks=_` removes a pin."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.calls import rewrite
from tensorc_dsl.interp.problems import BAD_VALUE, NOT_USED, fail
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.walk import walk

OPEN = "_"
"""The word that opens a draw."""


def opened(schedule: tree.ScheduleDef, names: Collection[str]) -> tree.ScheduleDef:
    """The schedule without the pins of the draws of these names; names without a draw are ignored.

    Raises TschedError (E0559) for a draw that no step depends on, such as a choice of a branch in a frozen schedule.
    """
    nodes = [*walk(schedule)]
    used = {n.id for n in nodes if isinstance(n, tree.Name)}
    for s in nodes:
        if isinstance(s, tree.DrawStmt) and s.pin is not None and s.name.name in names and s.name.name not in used:
            raise fail(NOT_USED, s.span, schedule=schedule.name, name=s.name.name)

    def unpinned(node: object) -> tree.DrawStmt | None:
        if isinstance(node, tree.DrawStmt) and node.pin is not None and node.name.name in names:
            return replace(node, pin=None)
        return None

    return rewrite(schedule, unpinned)


def read_decision(text: str) -> Decision:
    """The decision that a text spells: a number, `true`, `"text"`, a list of ints, or the name of a loop.

    Raises TschedError (E0557) for anything else.
    """
    try:
        items = parse(Source("value", f"schedule s for s {{ let x ~ d() := {text} }}")).items
    except TschedError:
        raise fail(BAD_VALUE, None, text=text) from None
    match items:
        case (tree.ScheduleDef(body=(tree.DrawStmt(pin=pin),)),) if pin is not None:
            return _value(pin, text)
        case _:
            raise fail(BAD_VALUE, None, text=text)


def _value(e: tree.Expr, text: str) -> Decision:
    match e:
        case tree.Number(value=value) | tree.Bool(value=value) | tree.String(value=value) if value == value:
            return value
        case tree.Negate(operand=tree.Number(value=value)):
            return -value
        case tree.Name(id=name):
            return name
        case tree.ListExpr(items=items):
            numbers = [_value(i, text) for i in items]
            ints = tuple(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
            if len(ints) == len(numbers):
                return ints
        case _:
            pass
    raise fail(BAD_VALUE, None, text=text)
