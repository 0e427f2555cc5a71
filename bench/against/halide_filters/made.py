"""An algorithm of Halide, and the steps that its schedules by hand are made of.

They are those of Halide's apps: strips of rows over the cores, in vectors, with the stages before in the strip, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bench.against.problem import Job

hl: Any = import_module("halide")

Given = Mapping[str, Any]
"""The inputs of an algorithm, by name."""

X, Y = hl.Var("x"), hl.Var("y")

LANES = 16
"""Numbers of 32 bits in a vector."""

ROWS = 32
"""Rows of a strip: the number in Halide's app for Harris's detector."""


@dataclass(frozen=True, slots=True)
class Made:
    """An algorithm's outputs, and what schedules them and their stages by hand. Autoschedulers get them without that."""

    results: tuple[Any, ...]
    by_hand: Callable[[], None]


def strips(result: Any, rowwise: tuple[Any, ...] = (), sliding: tuple[Any, ...] = (), lanes: int = LANES) -> None:
    """Strips of rows over the cores. Stages are computed for each row of the result, sliding ones for those rows of the
    strip that are not there yet.
    """
    strip, row = hl.Var("strip"), hl.Var("row")
    result.split(Y, strip, row, ROWS).parallel(strip).vectorize(X, lanes)
    for f in sliding:
        f.store_at(result, strip)
    for f in (*rowwise, *sliding):
        f.compute_at(result, row).vectorize(X, lanes)


def in_strips(result: Any, rowwise: tuple[Any, ...] = (), sliding: tuple[Any, ...] = (), lanes: int = LANES) -> Made:
    return Made((result,), lambda: strips(result, rowwise, sliding, lanes))


def extended(image: Any, height: int, width: int) -> Any:
    """An image that continues with the elements at its border."""
    return hl.BoundaryConditions.repeat_edge(image, [(0, width), (0, height)])


def edge(given: Given, job: Job) -> Any:
    h, w = job.inputs["X"].shape
    return extended(given["X"], h, w)


def joined(terms: list[Any], by: Callable[[Any, Any], Any] = lambda a, b: a + b) -> Any:
    """All terms in one, which is their sum if no other function is given."""
    total = terms[0]
    for t in terms[1:]:
        total = by(total, t)
    return total


def stage(name: str, element: Callable[[Any, Any], Any]) -> Any:
    """A stage with these elements at columns and rows."""
    f = hl.Func(name)
    f[X, Y] = element(X, Y)
    return f


def value(x: Any) -> Any:
    """An element of a stage as an expression, which some functions of Halide ask for."""
    return x if isinstance(x, hl.Expr) else hl.Expr(x)


def greater(a: Any, b: Any) -> Any:
    """The greater of two floats: one instruction. `max` of Halide, which looks after what is no number, takes three times as
    long in vectors.
    """
    a, b = value(a), value(b)
    return hl.select(a > b, a, b)


def lesser(a: Any, b: Any) -> Any:
    """As `greater`."""
    a, b = value(a), value(b)
    return hl.select(a < b, a, b)
