"""The values of schedule expressions."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, IndexMap, LoopRef
from tensorc_dsl.trace.declare import Interval
from tensorc_dsl.trace.distribution import Plain


@dataclass(frozen=True, slots=True)
class ProgramRef:
    """The program as a whole; `p.root` is the same."""


@dataclass(frozen=True, slots=True)
class OpenFactor:
    """`_` among the factors of a split."""


@dataclass(frozen=True, slots=True)
class Weights:
    """`{4: 0.2, 8: 0.8}`: values, each with its weight."""

    items: tuple[tuple[Value, Value], ...]


Scalar = (
    Plain | OpenFactor | LoopRef | BlockRef | BufferRef | ProgramRef | Target | IndexMap | Interval | Weights | None
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    """A value that depends on draws, with the straight-line code that computes it. A trace has this code, not the number.

    So deleting a pin from a trace reopens everything that follows from it.
    """

    value: Scalar | tuple[Value, ...]
    code: str
    draws: frozenset[str]
    """The names of the draws that the value depends on."""
    tight: bool = True
    """Whether the code needs no parentheses as an operand."""


Value = Scalar | Drawn | tuple["Value", ...]


def bare(value: Value) -> Scalar | tuple[Value, ...]:
    """The value without its own provenance; elements of a list keep theirs."""
    return value.value if isinstance(value, Drawn) else value


def draws_of(*values: Value) -> frozenset[str]:
    """The names of the draws that the values depend on, elements of lists included."""
    todo, found = [*values], frozenset[str]()
    while todo:
        match todo.pop():
            case Drawn(draws=draws):
                found |= draws
            case tuple() as items:
                todo += items
            case _:
                pass
    return found


def plain(value: Value) -> Value:
    """The value without its provenance, lists included."""
    match value:
        case Drawn(value=inner):
            return plain(inner)
        case tuple():
            return tuple(plain(v) for v in value)
        case _:
            return value


def extent_of(value: Value, most: int) -> tuple[int, int]:
    """The number of values in a list with all nested ones, and its depth; counting stops beyond `most` of either."""
    inner = bare(value)
    if not isinstance(inner, tuple):
        return 1, 0
    count, depth = 1, 0
    for v in inner:
        if count > most or depth > most:
            break
        if isinstance(v, tuple | Drawn):
            n, d = extent_of(v, most - count)
            count, depth = count + n, max(depth, d)
        else:
            count += 1
    return count, depth + 1


def is_number(value: Value) -> bool:
    """Whether the value is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_int(value: Value) -> int | None:
    """The value as an int; None if it is none."""
    v = bare(value)
    return v if isinstance(v, int) and not isinstance(v, bool) else None


def kind_of(value: Value) -> str:
    """The name of a value's kind in messages."""
    match bare(value):
        case bool():
            return "a bool"
        case int():
            return "an int"
        case float():
            return "a float"
        case str():
            return "a string"
        case tuple():
            return "a list"
        case LoopRef():
            return "a loop"
        case BlockRef():
            return "a block"
        case BufferRef():
            return "a buffer"
        case ProgramRef():
            return "the program"
        case Target():
            return "the target"
        case IndexMap():
            return "an index map"
        case Interval():
            return "a range"
        case Weights():
            return "a map of weights"
        case OpenFactor():
            return "`_`"
        case None:
            return "nothing"
