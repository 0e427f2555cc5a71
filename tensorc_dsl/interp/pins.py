"""Decisions that are written outside of a file: `ks=[64, 16]` means what `:= [64, 16]` does."""

from __future__ import annotations

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.interp.problems import BAD_VALUE, fail
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.trace.distribution import Decision


def read_decision(text: str) -> Decision:
    """The decision that a text stands for: a number, `true`, `"text"`, a list of ints, or the name of a loop.

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
        case tree.Number(value=value) | tree.Bool(value=value) | tree.String(value=value):
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
