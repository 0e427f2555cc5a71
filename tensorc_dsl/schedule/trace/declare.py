"""The declaration of a kind of draw: a name, and a function from arguments to a distribution.

The signature in the language, the line in a trace and the reference entry are derived from this
one declaration, as for primitives. A kind of draw is one file in `draws/`; that package imports all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tensorc_dsl.base.diagnostic import problem
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, Plain


@dataclass(frozen=True, slots=True)
class Interval:
    """`lo..hi`: both ends included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Choices:
    """A list of values, or a map from values to their weights."""

    values: tuple[Plain, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list whose elements have one kind, which may be any."""

    values: tuple[Any, ...]


def _same(decision: Decision) -> object:
    return decision


@dataclass(frozen=True, slots=True)
class Offer:
    """A distribution, and the function from a decision to its value in the language."""

    distribution: Distribution
    value: Callable[[Decision], object] = _same


@dataclass(frozen=True, slots=True)
class DrawKind:
    name: str
    function: Callable[..., Offer]
    signature: inspect.Signature
    """The parameters without the leading `program`; annotations are resolved types."""
    result: object
    """The type of the drawn value. `Choices` stands for an element of the argument, `Items` for a list like it."""
    doc: str


DRAWS: dict[str, DrawKind] = {}
"""All kinds of draws by name, filled by importing `tensorc_dsl.schedule.trace.draws`."""

F = TypeVar("F", bound=Callable[..., Offer])


def draw(result: object) -> Callable[[F], F]:
    """Declare a kind of draw with the name of the function, whose values are of type `result`.

    The function takes the program first, then the arguments in the language. It raises TschedError for arguments that never
    make sense, and ScheduleRefusal if this program leaves nothing to draw.
    """

    def register(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        params = list(signature.parameters.values())[1:]
        name = function.__name__
        if name in DRAWS:
            raise ValueError(f"draw {name!r} is declared twice")
        DRAWS[name] = DrawKind(
            name, function, signature.replace(parameters=params), result, inspect.getdoc(function) or ""
        )
        return function

    return register


@problem("E0503", "`{parameter}` of `{draw}` is {wanted}; this is {found}", help="pass {wanted}")
def BAD_ARGUMENT(*, parameter: str, draw: str, wanted: str, found: object) -> None: ...
