"""The declaration of a query about a block, a loop, a buffer, a node of a graph, the program or the target.

A query is a function with annotations and a one-line docstring; its kind in the checker, its meaning and its entry
in the reference are derived from these. Without further parameters it is an attribute (`b.loops`), otherwise a method
(`b.working_set(l)`). A query without an answer refuses, as a step does; it is no error of the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind, nearest
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IntrinsicRef, LoopRef, NodeRef


@frozen
class Query:
    """A query of a `subject`: a type of reference, `Program` or `Target`."""

    name: str
    subject: type
    function: Callable[..., Any]
    signature: inspect.Signature
    """The parameters in parentheses; annotations are resolved types."""
    result: object
    doc: str
    of_target: bool = False
    """The result depends on the target as well, which is the last parameter of the function."""
    step: str = ""
    """The primitive that it asks about, if that is what it is derived from."""

    @property
    def is_method(self) -> bool:
        """Whether it takes arguments."""
        return bool(self.signature.parameters)


PARTS = (BlockRef, LoopRef, BufferRef, IntrinsicRef, NodeRef)
"""What can be asked of a program beside itself."""

QUERIES: dict[type, dict[str, Query]] = {}
"""All queries by subject and name, filled by importing `tensorc_dsl.schedule.queries`."""

F = TypeVar("F", bound=Callable[..., Any])


def declare(asked: Query) -> None:
    """Add a query to the table."""
    table = QUERIES.setdefault(asked.subject, {})
    if asked.name in table:
        raise ValueError(f"query {asked.name!r} is declared twice")
    table[asked.name] = asked


def query(function: F) -> F:
    """Declare a query: a function of the program and its subject, or of the program or the target alone.

    After the subject it may have a parameter for the target, which calls in the language do not pass.
    """
    signature = inspect.signature(function, eval_str=True)
    params = list(signature.parameters.values())
    first = params[0].annotation
    subject: type = params[1].annotation if first is Program and params[1:] and params[1].annotation in PARTS else first
    own = params[1:] if subject in (Program, Target) else params[2:]
    of_target = bool(own) and own[0].annotation is Target
    doc = inspect.getdoc(function) or ""
    given = signature.replace(parameters=own[1:] if of_target else own)
    declare(Query(function.__name__, subject, function, given, signature.return_annotation, doc, of_target))
    return function


# The sizes that rules assume where a dimension is open.


UNLIMITED = 1024
"""The nominal size of a dimension that has no largest one (or four times its least size, if that is more)."""


def nominal_size(d: Dim) -> int:
    """The largest size that a dimension is timed at, as far as the task says, else its largest."""
    if d.at:
        return max(d.at)
    return max(UNLIMITED, 4 * d.low) if d.high is None else d.high


@by_identity(256)
def nominal(program: Program) -> Program:
    """The program with each open dimension at its nominal size, or near it where that one does not occur with the others; the
    program itself if none is open."""
    sizes = {d.name: nominal_size(d) for d in program.dims}
    return bind(program, nearest(program.dims, sizes) or sizes)
