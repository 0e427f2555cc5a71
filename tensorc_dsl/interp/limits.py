"""Bounds that make expansion terminate quickly, so that a foreign file can be checked, expanded and sampled safely.

The numbers are far above the needs of schedules of large networks, and low enough that the worst file is refused within
about a second.
"""

from __future__ import annotations

from tensorc_dsl.interp.problems import NESTED_LIST, TOO_DEEP, TOO_LONG, TOO_MANY_STEPS, fail
from tensorc_dsl.interp.values import Value, extent_of
from tensorc_dsl.source import Span

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
"""The number of lines of a trace: draws, and steps that change the program."""

MAX_LOOPS = 64
"""The number of loops around a block."""


class Budget:
    """Counts the resources that an expansion uses; each method raises TschedError if a bound is exceeded."""

    def __init__(self) -> None:
        self._steps = 0
        self._depth = 0

    def enter(self, span: Span) -> None:
        """Count one step and one level of depth. The level is not left if an error ends the expansion."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise fail(TOO_DEEP, span, most=MAX_DEPTH)
        self.charge(1, span)

    def leave(self) -> None:
        self._depth -= 1

    @property
    def depth(self) -> int:
        """The current depth."""
        return self._depth

    def back_to(self, depth: int) -> None:
        """Return to an earlier depth, after an error that ends a part of the expansion."""
        self._depth = depth

    def charge(self, steps: int, span: Span) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise fail(TOO_MANY_STEPS, span, most=MAX_STEPS)

    def use(self, value: Value, span: Span) -> None:
        """Count a value that is processed or made, with the values of nested lists."""
        if isinstance(value, str):
            if len(value) > MAX_STRING:
                raise fail(TOO_LONG, span, what="a string", count=len(value), parts="characters", most=MAX_STRING)
            return
        count, levels = extent_of(value, MAX_LIST)
        if count > MAX_LIST:
            raise fail(TOO_LONG, span, what="a list", count=f"more than {MAX_LIST}", parts="values", most=MAX_LIST)
        if levels > MAX_LEVELS:
            raise fail(NESTED_LIST, span, most=MAX_LEVELS)
        self.charge(count, span)
