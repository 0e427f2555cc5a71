"""Bounds that make expansion terminate quickly, so that a foreign file can be checked, expanded and sampled safely.

The numbers are far above the needs of schedules of large networks, and low enough that the worst file is refused within
about a second.
"""

from __future__ import annotations

from typing import NoReturn

from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.problems import NESTED_LIST, TOO_DEEP, TOO_LONG, TOO_MANY_STEPS, fail
from tensorc_dsl.interp.values import Value, extent_of
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, LoopRef

MAX_STEPS = 300_000
"""The number of statements, expressions and list elements that one expansion may process."""

MAX_LIST = 50_000
"""The number of values in a list, including those of nested lists."""

MAX_LEVELS = 8
"""The nesting depth of lists."""

MAX_STRING = 10_000
MAX_FORMULA = 1_000
"""The number of characters of a string, and of the formula over draws that a trace keeps for a value."""

MAX_DEPTH = 120
"""The nesting depth of calls, blocks and expressions, so that the recursive interpreter does not overflow."""

MAX_LINES = 5_000
"""The number of lines of a trace, with those that were undone: draws, and steps that change the program."""

REFUSAL_STEPS = 100
"""A refusal that is undone counts as so many of MAX_STEPS: a step that changes nothing makes no line."""

MAX_LOOPS = 64
"""The number of loops around a block."""


_SINGLE = (BlockRef, LoopRef, BufferRef, int)


class Budget:
    """Counts the resources that an expansion uses; each method raises TschedError if a bound is exceeded."""

    __slots__ = ("depth", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.depth = 0
        """The current depth. An error that ends a part of the expansion leaves it to its handler to go back."""

    def enter(self, span: Span) -> None:
        """Count one step and one level of depth."""
        self.depth += 1
        self.steps += 1
        if self.depth > MAX_DEPTH or self.steps > MAX_STEPS:
            self.refuse(span)

    def refuse(self, span: Span) -> NoReturn:
        """Raise the error for the bound that is exceeded."""
        if self.depth > MAX_DEPTH:
            raise fail(TOO_DEEP, span, most=MAX_DEPTH)
        raise fail(TOO_MANY_STEPS, span, most=MAX_STEPS)

    def use(self, value: Value, span: Span) -> None:
        """Count a value that is processed or made, with the values of nested lists."""
        if isinstance(value, str):  # not one that was drawn
            if len(value) > MAX_STRING:
                raise fail(TOO_LONG, span, what="a string", count=len(value), parts="characters", most=MAX_STRING)
            return
        count, levels = (1, 0) if isinstance(value, _SINGLE) else extent_of(value, MAX_LIST)
        if count > MAX_LIST:
            raise fail(TOO_LONG, span, what="a list", count=f"more than {MAX_LIST}", parts="values", most=MAX_LIST)
        if levels > MAX_LEVELS:
            raise fail(NESTED_LIST, span, most=MAX_LEVELS)
        self.steps += count
        if self.steps > MAX_STEPS:
            self.refuse(span)
