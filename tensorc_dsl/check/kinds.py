"""Kinds: the types that the checker infers for values before expansion.

`ANY` is an unknown kind. It fits everywhere, so a finding is right whatever the unknown kinds are.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum, auto
from typing import assert_never

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import (
    BlockPattern,
    BlockRef,
    BufferRef,
    IndexMap,
    IntrinsicRef,
    LoopPattern,
    LoopRef,
    NodeRef,
)
from tensorc_dsl.schedule.trace.distribution import Choices, Interval, Items
from tensorc_dsl.syntax import tree as t


class Base(Enum):
    """A kind of value without parts. The text is its name in messages."""

    ANY = "anything"
    BLOCK = "a block"
    LOOP = "a loop"
    BUFFER = "a buffer"
    NODE = "a node"
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


@frozen
class ListOf:
    """A list. The kind of its elements is `ANY` if they have different kinds or it is unknown."""

    element: Kind


@frozen
class MapOf:
    """A map from values to weights."""

    key: Kind


@frozen
class Variable:
    """A kind that each call of a module chooses, the same wherever its letter stands in the parameters."""

    name: str


@frozen
class Parameter:
    name: str
    wanted: tuple[Kind, ...] = (Base.ANY,)
    required: bool = True
    named: bool = False
    """Whether it is given by keyword only."""
    place: Span | None = field(default=None, compare=False)
    """Where it is declared, if in a file."""
    pattern: type[LoopPattern | BlockPattern] | None = None
    """What a string is a pattern of."""

    @property
    def is_unnamed(self) -> bool:
        """Whether it is one of a type of a parameter, `Module(Block)`, which has its kind in place of a name."""
        return self.name == show_all(self.wanted)

    @property
    def title(self) -> str:
        """What a message calls it: `x`, or "a block" if it is unnamed."""
        return self.name if self.is_unnamed else f"`{self.name}`"


@frozen
class ModuleOf:
    """A module, with the parameters that have no values yet."""

    params: tuple[Parameter, ...]
    keywords: bool = True
    """Whether arguments can be given by name; a type of a parameter has no names."""


Kind = Base | ListOf | MapOf | Variable | ModuleOf

ANY, BLOCK, LOOP, BUFFER, NODE = Base.ANY, Base.BLOCK, Base.LOOP, Base.BUFFER, Base.NODE
PROGRAM, TARGET, INT, FLOAT = Base.PROGRAM, Base.TARGET, Base.INT, Base.FLOAT
BOOL, STR, OPEN, NOTHING = Base.BOOL, Base.STR, Base.OPEN, Base.NOTHING
INSTRUCTION = Base.INSTRUCTION
LIST = ListOf(ANY)

MOST_LEVELS = 8
"""The depth of a kind that a variable stands for: so deep are lists, and a file can make kinds of kinds without an end."""

PARAM_TYPES: dict[str, Kind] = {
    "Block": BLOCK, "Loop": LOOP, "Buffer": BUFFER, "Program": PROGRAM, "Target": TARGET, "int": INT, "float": FLOAT,
    "bool": BOOL, "str": STR, "list": LIST, "Instruction": INSTRUCTION, "Node": NODE,
    "Module": ModuleOf((Parameter(BLOCK.value, (BLOCK,)),), False),
}  # fmt: skip
"""The types that a parameter of a module can be declared with. A module is applied to one block unless its type says more."""

_OF_TYPES: dict[object, tuple[Kind, ...]] = {
    LoopRef: (LOOP,), BlockRef: (BLOCK,), BufferRef: (BUFFER,), IntrinsicRef: (INSTRUCTION,), NodeRef: (NODE,),
    LoopPattern: (STR,), BlockPattern: (STR,), Program: (PROGRAM,), Target: (TARGET,), int: (INT,),
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
        case ModuleOf(), ModuleOf():
            return not misfit(kind, wanted)
        case _:
            return kind == wanted


def misfit(module: ModuleOf, wanted: ModuleOf) -> str:
    """Why a module cannot be applied to arguments of the wanted kinds; empty if it can."""
    for n, (p, given) in enumerate(zip(module.params, wanted.params, strict=False), 1):
        if not any(fits(kind, p.wanted) for kind in given.wanted):
            own = f"its `{p.name}`" if module.keywords else f"its argument {n}"
            return f"{own} is {show_all(p.wanted)}, not {show_all(given.wanted)}"
    if len(module.params) < len(wanted.params):
        return f"it takes {arguments(len(module.params))}, not {len(wanted.params)}"
    more = next((p for p in module.params[len(wanted.params) :] if p.required), None)
    return f"it needs {more.title} besides" if more is not None else ""


def arguments(count: int) -> str:
    """So many arguments, in words."""
    return f"{count} argument{'s' * (count != 1)}" if count else "no arguments"


def solve(kind: Kind, wanted: Kind, known: dict[str, Kind]) -> None:
    """Add to `known` what the variables of a wanted kind are, by the kind that is given for it."""
    match kind, wanted:
        case (Base.ANY, _):
            pass
        case (_, Variable(name=name)):
            known.setdefault(name, ANY if _is_deeper(kind, MOST_LEVELS) else kind)
        case (ListOf(element=a), ListOf(element=b)):
            solve(a, b, known)
        case (ModuleOf(), ModuleOf()):
            for own, given in zip(kind.params, wanted.params, strict=False):
                for a, b in zip(own.wanted, given.wanted, strict=False):
                    solve(a, b, known)
        case _:
            pass


def _is_deeper(kind: Kind, levels: int) -> bool:
    """Whether a kind has more than so many kinds in each other."""
    match kind:
        case ListOf(element=inner):
            return levels == 0 or _is_deeper(inner, levels - 1)
        case ModuleOf(params=params):
            return levels == 0 or any(_is_deeper(w, levels - 1) for p in params for w in p.wanted)
        case _:
            return False


def solved(kind: Kind, known: Mapping[str, Kind]) -> Kind:
    """The kind with its variables replaced; one that is not known may be anything."""
    match kind:
        case Variable(name=name):
            return known.get(name, ANY)
        case ListOf(element=inner):
            return ListOf(solved(inner, known))
        case ModuleOf(params=params):
            return replace(kind, params=tuple(solved_parameter(p, known) for p in params))
        case _:
            return kind


def solved_parameter(p: Parameter, known: Mapping[str, Kind]) -> Parameter:
    """The parameter with the variables of its kinds replaced."""
    return replace(p, wanted=tuple(solved(w, known) for w in p.wanted))


def join(a: Kind, b: Kind) -> Kind:
    """The kind of a value that has one of two kinds."""
    if a == b:
        return a
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return ListOf(join(a.element, b.element))
    if isinstance(a, ModuleOf) and isinstance(b, ModuleOf):
        needed = max(sum(p.required for p in m.params) for m in (a, b))
        both = ModuleOf(tuple(Parameter(show_all(p.wanted), p.wanted) for p in a.params[:needed]), False)
        return both if not misfit(a, both) and not misfit(b, both) else ANY
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
    Base.BLOCK: "blocks", Base.LOOP: "loops", Base.BUFFER: "buffers", Base.NODE: "nodes", Base.INT: "ints",
    Base.FLOAT: "floats", Base.BOOL: "bools", Base.STR: "strings", Base.OPEN: "`_`",
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
        case ListOf(element=ModuleOf() as inner):
            return f"a list of {show(inner).replace('a module', 'modules', 1)}"
        case ListOf(element=inner):
            return f"a list of {_PLURAL.get(inner, 'values')}"
        case Variable(name=name):
            return f"`{name}`"
        case ModuleOf(params=params):
            taken = [show_all(p.wanted) for p in params if p.required]
            return f"a module of {' and '.join(taken)}" if taken else "a module of nothing"
        case _:
            assert_never(kind)


def show_all(wanted: tuple[Kind, ...]) -> str:
    """The name of several kinds in messages: "a loop or a string"."""
    silent = (OPEN, NOTHING, ListOf(OPEN), ListOf(NOTHING))
    names = list(dict.fromkeys(show(k) for k in wanted if k not in silent))
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


# Signatures: the parameters of callables with their kinds, and the kinds of their results.


class Rule(Enum):
    """Results whose kind depends on the arguments."""

    FIRST = auto()
    """The kind of the first argument."""
    ELEMENT = auto()
    """The kind of the first argument's elements."""
    NUMBER = auto()
    """An int if all arguments (or the elements of the only one) are ints, otherwise a number."""


@frozen
class Signature:
    """The parameters of a callable. `rest` takes any number of arguments after `params`; lists there stand for elements."""

    params: tuple[Parameter, ...] = ()
    rest: Parameter | None = None
    keywords: bool = True
    result: Kind | Rule = ANY
    doc: str = ""

    @property
    def positional(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.params if not p.named)

    def result_for(self, args: list[Kind]) -> Kind:
        """The kind of the result for positional arguments of the given kinds."""
        first = args[0] if args else ANY
        match self.result:
            case Rule.FIRST:
                return first
            case Rule.ELEMENT:
                return element(first)
            case Rule.NUMBER:
                numbers = [element(a) if isinstance(a, ListOf) else a for a in args]
                return INT if numbers and all(n == INT for n in numbers) else FLOAT if FLOAT in numbers else ANY
            case _:
                return self.result


def of_function(signature: inspect.Signature, result: object, doc: str = "") -> Signature:
    """The signature of a declared primitive, draw or query; `result` is the Python type of its result."""
    params: list[Parameter] = []
    rest: Parameter | None = None
    for p in signature.parameters.values():
        pattern = p.annotation if p.annotation in (LoopPattern, BlockPattern) else None
        mine = Parameter(
            p.name, kinds_of(p.annotation), p.default is p.empty, p.kind is p.KEYWORD_ONLY, pattern=pattern
        )
        if p.kind is p.VAR_POSITIONAL:
            rest = Parameter(p.name, mine.wanted, False)
        else:
            params.append(mine)
    # A drawn category is one of the values, a permutation is a list of the same kind as the original.
    gives = Rule.ELEMENT if result is Choices else Rule.FIRST if result is Items else kind_of(result)
    return Signature(tuple(params), rest, True, gives, doc)


def of_module(m: t.ModuleDef) -> Signature:
    """The signature of a module; parameters without a type accept any kind."""
    params = (Parameter(p.name, (of_type(p.type),), p.default is None, False, p.name.span) for p in m.params)
    return Signature(tuple(params), result=NOTHING, doc=m.doc)


def of_type(p: t.ParamType | None) -> Kind:
    """The kind that a type stands for; `ANY` for no type, and for one that there is not."""
    match p:
        case t.ParamType(name="Module", parts=tuple() as parts):
            return ModuleOf(tuple(Parameter(show(k), (k,)) for k in map(of_type, parts)), False)
        case t.ParamType(name="list", parts=(part,)):
            return ListOf(of_type(part))
        case t.ParamType(name=name, parts=None):
            return Variable(name) if is_variable(name) else PARAM_TYPES.get(name, ANY)
        case _:
            return ANY


def is_variable(name: str) -> bool:
    """Whether a type is a letter that stands for any kind."""
    return len(name) == 1 and name.isupper()


def usage(name: str, s: Signature) -> str:
    """The call's form as text: `split(loop, factors, partial=…)`."""
    parts: list[str] = []
    for p in s.positional:
        parts.append(p.name if p.required else f"{p.name}=…" if s.keywords else f"[{p.name}]")
    if s.rest and (not parts or not s.rest.name.isidentifier()):
        parts.append(s.rest.name)
    if s.rest and s.rest.name.isidentifier():
        parts.append("…")
    parts += [f"{p.name}=…" for p in s.params if p.named]
    return f"`{name}({', '.join(parts)})`"


# The interface of listeners for the meanings of names while a body is checked.


class Listener:
    """A listener that ignores everything; `positions` has one that records it."""

    def named(self, at: Span, name: str, places: tuple[Span, ...], kind: Kind) -> None:
        """The name at `at` is bound at `places`; they are empty for names that every body has. Its value is of that kind."""

    def unknown(self, at: Span, scope: Iterable[str]) -> None:
        """The name at `at` is none of those in scope."""

    def part(self, at: Span, kind: Kind) -> None:
        """The name at `at` stands behind a point: a part, a query or a method of a value of that kind."""

    def asked(self, at: Span, name: str, doc: str) -> None:
        """The name at `at` is a query without parentheses."""

    def called(self, call: t.CallExpr, at: Span, name: str, to: Signature | t.ModuleDef) -> None:
        """The name at `at` is called, with the signature or module that it stands for."""


NOBODY = Listener()
