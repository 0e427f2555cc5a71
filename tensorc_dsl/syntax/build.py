"""What the builders share: the values that rules pass to each other, and the mark of a method that builds a rule.

A builder has one method per rule of `grammar/tsched.lark`. The parser calls a method when it has recognised the rule of that
name, and passes the values of the rule's parts. Signs and keywords are already removed. A part that is only a list is passed
as `Seq`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tensorc_dsl.base.source import Span

T = TypeVar("T")


@dataclass(slots=True)
class Seq(Generic[T]):
    """A list without a node of its own."""

    items: tuple[T, ...]
    span: Span


def items(seq: Seq[T] | None) -> tuple[T, ...]:
    """The entries of an optional list; none if the list is missing."""
    return () if seq is None else seq.items


Parts = list[Any]


def rule(method: Callable[[Any, Span, Parts], T]) -> Callable[[Any, Span, Parts], T]:
    """Marks a method that the parser calls for the rule of its name, with the rule's span and its parts without signs."""
    return method
