"""The values of schedule expressions, and the bounds that make expansion terminate quickly."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import NoReturn

from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.problems import NESTED_LIST, TOO_DEEP, TOO_LONG, TOO_MANY_STEPS, fail
from tensorc_dsl.ir.expr import Expr, Var
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IndexMap, IntrinsicRef, LoopRef, NodeRef
from tensorc_dsl.schedule.trace.distribution import Interval, Plain


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


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A module, with values for some of its parameters."""

    name: str
    options: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class AnyRankMap:
    """`(..., k, j) -> (..., j / 4, k, j % 4)`: an index map, but for how many indices `...` is; None stands for it.

    Results are expressions with their code, which mentions `draws`; `taken` are the names that mean something where it is
    written.
    """

    params: tuple[str | None, ...]
    results: tuple[tuple[Expr, str] | None, ...]
    draws: frozenset[str]
    taken: frozenset[str]

    @property
    def code(self) -> str:
        results = ("..." if r is None else r[1] for r in self.results)
        return f"({', '.join(p or '...' for p in self.params)}) -> ({', '.join(results)})"

    def of(self, rank: int) -> Value:
        """The map of so many indices; that of fewer than are named has only those."""
        names = (n for k in itertools.count() for n in (letter + str(k or "") for letter in ascii_lowercase))
        taken = self.taken.union(self.draws, (p for p in self.params if p))
        free = (n for n in names if n not in taken)
        rest = [*itertools.islice(free, max(0, rank + 1 - len(self.params)))]
        params = tuple(name for p in self.params for name in (rest if p is None else [p]))
        spelled: list[tuple[Expr, str]] = [(Var(name), name) for name in rest]
        results = [pair for r in self.results for pair in (spelled if r is None else [r])]
        return index_map(params, results, self.draws)


Scalar = (
    Plain | IntrinsicRef | OpenFactor | LoopRef | BlockRef | BufferRef | NodeRef | ProgramRef | Target | IndexMap
    | AnyRankMap | Interval | Weights | ModuleRef | None
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


def index_map(params: tuple[str, ...], results: Sequence[tuple[Expr, str]], draws: frozenset[str]) -> Value:
    """An index map; where its code mentions draws, it remembers them."""
    result = IndexMap(params, tuple(e for e, _ in results))
    return Drawn(result, f"({', '.join(params)}) -> ({', '.join(c for _, c in results)})", draws) if draws else result


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
    """The number of values in a list with all nested ones, and its depth; counting stops beyond `most` of either.

    So of a module, which has its options.
    """
    inner = bare(value)
    if isinstance(inner, ModuleRef):
        inner = tuple(v for _, v in inner.options)
    if not isinstance(inner, tuple):
        return 1, 0
    count, depth = 1, 0
    for v in inner:
        if count > most or depth > most:
            break
        if isinstance(v, tuple | Drawn | ModuleRef):
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
        case IntrinsicRef():
            return "an instruction"
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
        case NodeRef():
            return "a node"
        case ProgramRef():
            return "the program"
        case Target():
            return "the target"
        case IndexMap() | AnyRankMap():
            return "an index map"
        case Interval():
            return "a range"
        case Weights():
            return "a map of weights"
        case OpenFactor():
            return "`_`"
        case ModuleRef():
            return "a module"
        case None:
            return "nothing"


# Bounds that make expansion terminate quickly, so that a foreign file can be checked, expanded and sampled safely.
#
# The numbers are far above the needs of schedules of large networks, and low enough that the worst file is refused within
# about a second.


MAX_STEPS = 300_000
"""The number of statements, expressions and list elements that one expansion may process."""

MAX_LIST = 50_000
"""The number of values in a list, including those of nested lists."""

MAX_LEVELS = 8
"""The nesting depth of lists."""

MAX_STRING = 10_000
MAX_FORMULA = 1_000
"""The number of characters of a string, and of the formula over draws that a trace keeps for a value."""

MAX_DEPTH = 120
"""The nesting depth of calls, blocks and expressions, so that the recursive interpreter does not overflow."""

MAX_LINES = 5_000
"""The number of lines of a trace, with those that were undone: draws, and steps that change the program."""

REFUSAL_STEPS = 100
"""A refusal that is undone counts as so many of MAX_STEPS: a step that changes nothing makes no line."""

MAX_LOOPS = 64
"""The number of loops around a block."""


_SINGLE = (BlockRef, LoopRef, BufferRef, NodeRef, int)


class Budget:
    """Counts the resources that an expansion uses; each method raises TschedError if a bound is exceeded."""

    __slots__ = ("depth", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.depth = 0
        """The current depth. An error that ends a part of the expansion leaves it to its handler to go back."""

    def enter(self, span: Span) -> None:
        """Count one step and one level of depth."""
        self.depth += 1
        self.steps += 1
        if self.depth > MAX_DEPTH or self.steps > MAX_STEPS:
            self.refuse(span)

    def refuse(self, span: Span) -> NoReturn:
        """Raise the error for the bound that is exceeded."""
        if self.depth > MAX_DEPTH:
            raise fail(TOO_DEEP, span, most=MAX_DEPTH)
        raise fail(TOO_MANY_STEPS, span, most=MAX_STEPS)

    def use(self, value: Value, span: Span) -> None:
        """Count a value that is processed or made, with the values of nested lists."""
        if isinstance(value, str):  # not one that was drawn
            if len(value) > MAX_STRING:
                raise fail(TOO_LONG, span, what="a string", count=len(value), parts="characters", most=MAX_STRING)
            return
        count, levels = (1, 0) if isinstance(value, _SINGLE) else extent_of(value, MAX_LIST)
        if count > MAX_LIST:
            raise fail(TOO_LONG, span, what="a list", count=f"more than {MAX_LIST}", parts="values", most=MAX_LIST)
        if levels > MAX_LEVELS:
            raise fail(NESTED_LIST, span, most=MAX_LEVELS)
        self.steps += count
        if self.steps > MAX_STEPS:
            self.refuse(span)
