"""Signatures: the parameters of callables with their kinds, and the kinds of their results."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import Enum, auto

from tensorc_dsl.check.kinds import (
    ANY,
    FLOAT,
    INT,
    NOTHING,
    PARAM_TYPES,
    Kind,
    ListOf,
    ModuleOf,
    Parameter,
    Variable,
    element,
    kind_of,
    kinds_of,
    show,
)
from tensorc_dsl.schedule.refs import BlockPattern, LoopPattern
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.trace.declare import Choices, Items


class Rule(Enum):
    """Results whose kind depends on the arguments."""

    FIRST = auto()
    """The kind of the first argument."""
    ELEMENT = auto()
    """The kind of the first argument's elements."""
    NUMBER = auto()
    """An int if all arguments (or the elements of the only one) are ints, otherwise a number."""


@dataclass(frozen=True, slots=True)
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
    if s.rest:
        parts.append("…" if s.rest.name.isidentifier() else s.rest.name)
    parts += [f"{p.name}=…" for p in s.params if p.named]
    return f"`{name}({', '.join(parts)})`"
