"""What a kind of draw is: a name and a function from arguments to a distribution.

Everything else about it (its signature in the language, its line in a trace, its reference entry) is derived from this
one declaration, as it is for primitives. A kind of draw is one file in `draws/`; the package imports them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tensorc_dsl.diagnostic import problem
from tensorc_dsl.trace.distribution import Decision, Distribution, Plain


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
    """A list whose elements are of one kind, whichever that is."""

    values: tuple[Any, ...]


def _same(decision: Decision) -> object:
    return decision


@dataclass(frozen=True, slots=True)
class Offer:
    """A distribution, and the value in the language that a decision stands for."""

    distribution: Distribution
    value: Callable[[Decision], object] = _same


@dataclass(frozen=True, slots=True)
class DrawKind:
    name: str
    function: Callable[..., Offer]
    signature: inspect.Signature
    """Without the leading `program`; annotations are resolved types."""
    result: object
    """The type of the drawn value. `Choices` and `Items` stand for an element of, and a list like, the argument."""
    doc: str


DRAWS: dict[str, DrawKind] = {}
"""All kinds of draws by name, filled by importing `tensorc_dsl.trace.draws`."""

F = TypeVar("F", bound=Callable[..., Offer])


def draw(result: object) -> Callable[[F], F]:
    """Declare a kind of draw, named like the function, whose values are of type `result`.

    The function takes the program first, then what the language passes. It raises TschedError where an argument makes no
    sense, and ScheduleRefusal where this program leaves nothing to draw.
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


@problem("E0503", "`{parameter}` of `{draw}` is {wanted}; this is {found}")
def BAD_ARGUMENT(*, parameter: str, draw: str, wanted: str, found: object) -> None: ...
