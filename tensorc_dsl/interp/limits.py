"""Bounds that make expansion total: a file from a stranger can be checked, expanded and sampled safely.

The numbers are far above what schedules of large networks need and low enough that the worst file is refused within
about a second.
"""

from __future__ import annotations

from tensorc_dsl.interp.problems import NESTED_LIST, TOO_DEEP, TOO_LONG, TOO_MANY_STEPS, fail
from tensorc_dsl.interp.values import Value, extent_of
from tensorc_dsl.source import Span

MAX_STEPS = 300_000
"""Statements, expressions and list elements that one expansion may go through."""

MAX_LIST = 50_000
"""Values in a list, those of the lists in it included."""

MAX_LEVELS = 8
"""Lists in lists."""

MAX_STRING = 10_000
MAX_FORMULA = 1_000
"""Characters of a string, and of the formula over draws that a trace keeps for a value."""

MAX_DEPTH = 120
"""How deep calls, blocks and expressions may be nested in each other, so that the interpreter may recurse."""

MAX_LINES = 5_000
"""Lines of a trace: draws, and steps that change the program."""

MAX_LOOPS = 64
"""Loops around a block."""


class Budget:
    """Counts what an expansion uses up; each method raises TschedError where a bound is passed."""

    def __init__(self) -> None:
        self._steps = 0
        self._depth = 0

    def enter(self, span: Span) -> None:
        """One step, one level deeper. Not left again when an error ends the expansion."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise fail(TOO_DEEP, span, most=MAX_DEPTH)
        self.charge(1, span)

    def leave(self) -> None:
        self._depth -= 1

    @property
    def depth(self) -> int:
        """How deep it is by now."""
        return self._depth

    def back_to(self, depth: int) -> None:
        """Leave all that was entered since, after an error that ends a part of the expansion."""
        self._depth = depth

    def charge(self, steps: int, span: Span) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise fail(TOO_MANY_STEPS, span, most=MAX_STEPS)

    def use(self, value: Value, span: Span) -> None:
        """Pay for going through a value, lists in it included, or for having made it."""
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
