"""Refusals: reasons why a schedule step does not apply, declared as values beside the primitive that raises them.

A `ScheduleRefusal` means *inapplicable*. It is neither a failed candidate nor a bug: the search goes on, and a hand-written
schedule reports it with the program as it stood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec

from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.program import Program

Facts = ParamSpec("Facts")


@dataclass(frozen=True, slots=True)
class Refusal(Generic[Facts]):
    """A declared reason: `message`, `help` and `label` are format strings over the facts given when it is raised."""

    code: str
    message: str
    help: str
    at: str
    label: str

    def __call__(self, program: Program, *focus: Facts.args, **facts: Facts.kwargs) -> ScheduleRefusal:
        """The exception to raise; `focus` names the loops and blocks of `program` that the message marks."""
        named = tuple(str(name) for name in focus)
        return ScheduleRefusal(self, self.message.format(**facts), self.help.format(**facts), program, named, facts)


def refusal(
    code: str, message: str, help: str = "", at: str = "", label: str = ""
) -> Callable[[Callable[Facts, None]], Refusal[Facts]]:
    """Declare a reason above a function with its facts as parameters, `def NOT_SERIAL(*focus: str, loop: str) -> None: ...`.

    `at` selects the argument to underline: the loop, block or buffer that the fact of this name names, else the argument
    of the parameter of this name. Without either, the whole call is underlined. `label` stands beside the underline, if it
    adds to the message. Facts are checked as those of `diagnostic.problem` are.
    """

    def declare(_facts: Callable[Facts, None]) -> Refusal[Facts]:
        return Refusal(code, message, help, at, label)

    return declare


class ScheduleRefusal(Exception):
    """A primitive would change what the program computes, or its arguments do not fit the program."""

    def __init__(
        self,
        refusal: Refusal[...],
        message: str,
        help: str,
        program: Program,
        focus: tuple[str, ...],
        facts: dict[str, object],
    ) -> None:
        super().__init__(f"{refusal.code}: {message}")
        self.refusal = refusal
        self.message = message
        self.help = help
        self.program = program
        self.focus = focus
        self.facts = facts
        self.span: Span | None = None
        """The place of the argument at fault, or of the step, set by the interpreter."""
        self.origin = ""
        """The step of a module that failed, and the draws in its arguments; empty in a schedule without draws."""
        self.steps: tuple[str, ...] = ()
        """The lines of the trace before the step."""

    def __reduce__(self) -> tuple[object, ...]:
        """A trace with a refused rule comes from another process; `Exception` would be made of the text alone."""
        made_of = (self.refusal, self.message, self.help, self.program, self.focus, self.facts)
        return type(self), made_of, self.__dict__
