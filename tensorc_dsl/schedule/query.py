"""The declaration of a query: a question that a schedule asks about a block, a loop, a buffer, the program or the target.

A query is a function with annotations and a one-line docstring; its kind in the checker, its meaning and its entry
in the reference are derived from these. Without further parameters it is an attribute (`b.loops`), otherwise a method
(`b.working_set(l)`). A query without an answer refuses, as a step does; it is no error of the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a `subject`: a type of reference, `Program` or `Target`."""

    name: str
    subject: type
    function: Callable[..., Any]
    signature: inspect.Signature
    """The parameters in parentheses; annotations are resolved types."""
    result: object
    doc: str

    @property
    def is_method(self) -> bool:
        return bool(self.signature.parameters)


QUERIES: dict[type, dict[str, Query]] = {}
"""All queries by subject and name, filled by importing `tensorc_dsl.schedule.queries`."""

F = TypeVar("F", bound=Callable[..., Any])


def query(function: F) -> F:
    """Declare a query: a function of the program and its subject, or of the program or the target alone."""
    signature = inspect.signature(function, eval_str=True)
    params = list(signature.parameters.values())
    first = params[0].annotation
    subject: type = params[1].annotation if first is Program and len(params) > 1 else first
    own = params[1:] if subject in (Program, Target) else params[2:]
    table = QUERIES.setdefault(subject, {})
    name = function.__name__
    if name in table:
        raise ValueError(f"query {name!r} is declared twice")
    doc = inspect.getdoc(function) or ""
    table[name] = Query(name, subject, function, signature.replace(parameters=own), signature.return_annotation, doc)
    return function
