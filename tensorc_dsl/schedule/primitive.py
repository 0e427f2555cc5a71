"""What a primitive is: a name, a pure function from program to program, and the refusals it declares.

Everything else about a primitive (its signature in the language, its line in a trace, its reference page) is derived from
this one declaration. A primitive is one file in `primitives/`; the package imports them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.declared import refuse_stale
from tensorc_dsl.schedule.refusal import Refusal


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A loop by its variable's name, unique in the program."""

    name: str


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block by name."""

    name: str


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer by name. Where one is expected, a block stands for the buffer it writes."""

    name: str


@dataclass(frozen=True, slots=True)
class IndexMap:
    """`(i, j) -> (i / 4, j, i % 4)`: results are index expressions over the parameters."""

    params: tuple[str, ...]
    results: tuple[Expr, ...]


Ref = LoopRef | BlockRef | BufferRef


Result = LoopRef | BlockRef | tuple[LoopRef, ...] | tuple[BlockRef, ...] | None
R_co = TypeVar("R_co", bound=Result, covariant=True)


@dataclass(frozen=True, slots=True)
class Rewrite(Generic[R_co]):
    """The new program, and the loops or blocks a caller may want to name (a list where there can be several)."""

    program: Program
    results: R_co


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str
    function: Callable[..., Rewrite[Result]]
    refusals: tuple[Refusal[...], ...]
    signature: inspect.Signature
    """Without the leading `program`; annotations are resolved types."""
    result: object
    """The type of what the step gives back: what the function says it returns, `Rewrite[result]`."""
    doc: str


PRIMITIVES: dict[str, Primitive] = {}
"""All primitives by name, filled by importing `tensorc_dsl.schedule.primitives`."""

F = TypeVar("F", bound=Callable[..., Rewrite[Result]])


def primitive(*refusals: Refusal[...]) -> Callable[[F], F]:
    """Declare a primitive: a function of the program and what the language passes, annotated with `Rewrite[result]`."""

    def register(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        params = list(signature.parameters.values())[1:]
        name = function.__name__
        if name in PRIMITIVES:
            raise ValueError(f"primitive {name!r} is declared twice")
        (result,) = get_args(signature.return_annotation)
        PRIMITIVES[name] = Primitive(
            name, function, refusals, signature.replace(parameters=params), result, inspect.getdoc(function) or ""
        )
        return function

    return register


def apply(program: Program, name: str, *args: Any, **kwargs: Any) -> Rewrite[Result]:
    """Run a primitive by name. KeyError when there is none; ScheduleRefusal when it does not apply.

    What earlier steps declared of a loop still holds after it, or the step is refused.
    """
    rewrite = PRIMITIVES[name].function(program, *args, **kwargs)
    if rewrite.program is not program:
        refuse_stale(name, program, rewrite.program)
    return rewrite
