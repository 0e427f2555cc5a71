"""The outcome of each rule and each `try` in an expansion: applied, with its draws, or left alone, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tensorc_dsl.interp.values import ModuleRef, ProgramRef, Value, bare, plain
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, LoopRef
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_expr
from tensorc_dsl.trace.distribution import literal
from tensorc_dsl.trace.draw import Draw


@dataclass(slots=True)
class Attempt:
    """A module or the first part of a `try`. `depth` counts those around it; `reasons` is empty if it was applied.

    `refusal` is the reason if one of its steps, or of a module that it called, was refused; then all that it did was undone.

    `module` is its name or, if a space or schedule calls it directly, the call as it is written there.
    `owner` is the module's name without its path; empty for the schedule or space itself.
    `draws` are its own draws, without those of modules that it called, and `names` those of all draws of the module.
    A `try` begins in `line`, which is 0 for a module; the others are as in the module around it.
    """

    module: str
    subject: str
    depth: int
    reasons: tuple[str, ...] = ()
    refusal: str = ""
    owner: str = ""
    draws: list[Draw] = field(default_factory=list[Draw])
    names: list[str] = field(default_factory=list[str])
    line: int = 0


def reasons(condition: tree.Expr, ask: Callable[[tree.Expr], Value]) -> tuple[str, ...]:
    """The reasons why a condition is false: its false parts, with the values that they refer to.

    For `and` only the first false part counts, since later parts are not evaluated; for `or` all do.
    """
    return tuple(_false(condition, ask))


def _false(e: tree.Expr, ask: Callable[[tree.Expr], Value]) -> Iterator[str]:
    match e:
        case tree.LogicExpr(op="and", lhs=a, rhs=b):
            yield from _false(b if bare(ask(a)) is True else a, ask)
        case tree.LogicExpr(op="or", lhs=a, rhs=b):
            yield from _false(a, ask)
            yield from _false(b, ask)
        case tree.NotExpr(operand=a):
            yield f"`{format_expr(a)}` is true"
        case tree.CompareExpr(operands=operands):
            values = [f"`{format_expr(o)}` is {shown(ask(o))}" for o in operands if not _is_plain(o)]
            yield f"`{format_expr(e)}` is false" + (f": {', '.join(values)}" if values else "")
        case _:
            yield f"`{format_expr(e)}` is false"


def _is_plain(e: tree.Expr) -> bool:
    return isinstance(e, tree.Number | tree.String | tree.Bool)


def shown(value: Value) -> str:
    """A value as text for people, with references by their names."""
    match plain(value):
        case BlockRef(name=name) | LoopRef(name=name) | BufferRef(name=name):
            return name
        case ProgramRef():
            return "the program"
        case tuple() as items:
            return f"[{', '.join(shown(v) for v in items)}]"
        case bool() | int() | float() | str() as scalar:
            return literal(scalar)
        case Target(kind=kind):
            return kind
        case ModuleRef(name=name):
            return name
        case other:
            return str(other)
