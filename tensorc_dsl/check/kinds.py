"""Kinds: the types that the checker infers for values before expansion.

`ANY` is an unknown kind. It fits everywhere, so a finding is right whatever the unknown kinds are.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, IndexMap, IntrinsicRef, LoopRef
from tensorc_dsl.trace.declare import Choices, Interval, Items


class Base(Enum):
    """A kind of value without parts. The text is its name in messages."""

    ANY = "anything"
    BLOCK = "a block"
    LOOP = "a loop"
    BUFFER = "a buffer"
    PROGRAM = "the program"
    TARGET = "the target"
    INT = "an int"
    FLOAT = "a float"
    BOOL = "a bool"
    STR = "a string"
    INDEX_MAP = "an index map"
    INSTRUCTION = "an instruction"
    RANGE = "a range"
    OPEN = "`_`"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. The kind of its elements is `ANY` if they have different kinds or it is unknown."""

    element: Kind


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from values to weights."""

    key: Kind


Kind = Base | ListOf | MapOf

ANY, BLOCK, LOOP, BUFFER = Base.ANY, Base.BLOCK, Base.LOOP, Base.BUFFER
PROGRAM, TARGET, INT, FLOAT = Base.PROGRAM, Base.TARGET, Base.INT, Base.FLOAT
BOOL, STR, OPEN, NOTHING = Base.BOOL, Base.STR, Base.OPEN, Base.NOTHING
INSTRUCTION = Base.INSTRUCTION
LIST = ListOf(ANY)

PARAM_TYPES: dict[str, Kind] = {
    "Block": BLOCK, "Loop": LOOP, "Buffer": BUFFER, "Program": PROGRAM, "Target": TARGET, "int": INT, "float": FLOAT,
    "bool": BOOL, "str": STR, "list": LIST, "Instruction": INSTRUCTION,
}  # fmt: skip
"""The types that a parameter of a module can be declared with."""

_OF_TYPES: dict[object, tuple[Kind, ...]] = {
    LoopRef: (LOOP,), BlockRef: (BLOCK,), BufferRef: (BUFFER,), IntrinsicRef: (INSTRUCTION,),
    Program: (PROGRAM,), Target: (TARGET,), int: (INT,),
    float: (FLOAT,), bool: (BOOL,), str: (STR,), IndexMap: (Base.INDEX_MAP,), Interval: (Base.RANGE,), Items: (LIST,),
    Choices: (ListOf(INT), ListOf(FLOAT), ListOf(BOOL), ListOf(STR), MapOf(ANY)), type(None): (OPEN, NOTHING),
}  # fmt: skip


def kinds_of(annotation: object) -> tuple[Kind, ...]:
    """The kinds for a Python type in the annotation of a primitive's, draw's or query's parameter."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        parts = typing.get_args(annotation)
        # If a step takes a block or None, None means the whole program.
        root = (PROGRAM,) if BlockRef in parts and type(None) in parts else ()
        return (*(k for part in parts for k in kinds_of(part)), *root)
    if typing.get_origin(annotation) is tuple:
        return tuple(ListOf(k) for k in kinds_of(typing.get_args(annotation)[0]))
    return _OF_TYPES[annotation]


def kind_of(annotation: object) -> Kind:
    """The kind of a result of that type; `ANY` if it may have several kinds."""
    found = kinds_of(annotation) if annotation is not type(None) else (NOTHING,)
    return found[0] if len(found) == 1 else ANY


def fits(kind: Kind, wanted: tuple[Kind, ...]) -> bool:
    """Whether a value of the kind is accepted for a wanted kind. An int is a float; a block stands for its buffer.

    An instruction is a string, and a string may be the name of an instruction.
    """
    return any(_fits(kind, w) for w in wanted)


def _fits(kind: Kind, wanted: Kind) -> bool:
    match kind, wanted:
        case (Base.ANY, _) | (_, Base.ANY):
            return True
        case (ListOf(element=a), ListOf(element=b)) | (MapOf(key=a), MapOf(key=b)):
            return _fits(a, b)
        case (Base.INT, Base.FLOAT) | (Base.BLOCK, Base.BUFFER) | (Base.BUFFER, Base.BLOCK):
            return True
        case (Base.INSTRUCTION, Base.STR) | (Base.STR, Base.INSTRUCTION):
            return True
        case _:
            return kind == wanted


def join(a: Kind, b: Kind) -> Kind:
    """The kind of a value that has one of two kinds."""
    if a == b:
        return a
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return ListOf(join(a.element, b.element))
    return ANY


def join_all(kinds: typing.Iterable[Kind]) -> Kind:
    """The kind of a value that has one of several kinds; `ANY` for none."""
    out: Kind | None = None
    for k in kinds:
        out = k if out is None else join(out, k)
    return ANY if out is None else out


def element(kind: Kind) -> Kind:
    """The kind of the elements of a list, the keys of a map, or the characters of a string."""
    match kind:
        case ListOf(element=inner) | MapOf(key=inner):
            return inner
        case _:
            return STR if kind == STR else ANY


_PLURAL: dict[Kind, str] = {
    Base.BLOCK: "blocks", Base.LOOP: "loops", Base.BUFFER: "buffers", Base.INT: "ints", Base.FLOAT: "floats",
    Base.BOOL: "bools", Base.STR: "strings", Base.OPEN: "`_`",
}  # fmt: skip


def show(kind: Kind) -> str:
    """The kind's name in messages: "a list of loops"."""
    match kind:
        case Base():
            return kind.value
        case MapOf():
            return "a map of weights"
        case ListOf(element=Base.ANY):
            return "a list"
        case ListOf(element=ListOf() | MapOf()):
            return "a list of lists"
        case ListOf(element=inner):
            return f"a list of {_PLURAL.get(inner, 'values')}"
        case _:
            assert_never(kind)


def show_all(wanted: tuple[Kind, ...]) -> str:
    """The name of several kinds in messages: "a loop or a string"."""
    silent = (OPEN, NOTHING, ListOf(OPEN), ListOf(NOTHING))
    names = list(dict.fromkeys(show(k) for k in wanted if k not in silent))
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
