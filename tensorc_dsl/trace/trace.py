"""A trace: what one expansion did, as straight-line schedule code with every draw pinned, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.trace.draw import Decision, Draw


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule of a space one of whose steps was refused on `subject`: nothing of it was done there."""

    rule: str
    subject: str
    refusal: ScheduleRefusal = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """`text` is a `schedule` item that expands to this very program, byte for byte; `program` is the scheduled program.

    `draws` are all that were decided. Those of a rule that was `refused` are not in the text: nothing there depends on them.
    `modules` are the names of those that were applied, in the order in which each was first.
    """

    name: str
    compute: str
    lines: tuple[str, ...]
    draws: tuple[Draw, ...]
    program: Program = field(repr=False)
    refused: tuple[Refused, ...] = ()
    modules: tuple[str, ...] = field(default=(), compare=False)

    @property
    def text(self) -> str:
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"schedule {self.name} for {self.compute} {{\n{body}}}\n"

    @property
    def decisions(self) -> Mapping[str, Decision]:
        return {d.name: d.decision for d in self.draws}

    @property
    def open_draws(self) -> tuple[Draw, ...]:
        """The draws that a search may decide: those that no text pins."""
        return tuple(d for d in self.draws if not d.pinned)
