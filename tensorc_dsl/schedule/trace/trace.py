"""A trace: the record of one expansion as straight-line schedule code with every draw pinned, and its program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tensorc_dsl.base.diagnostic import Diagnostic, Note, Severity
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.schedule.render import refusal_diagnostic
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution

# Draws that were made, with their distributions and decisions.


@dataclass(frozen=True, slots=True)
class Draw:
    """A draw that was made. A `pinned` one was fixed in the text or by a handler, so a search cannot change it.

    Its `name` is unique in the trace. Its `owner` says to people whose it is, `multi_level_tiling.factors of C`: the module,
    the name in its text, and what the module was applied to; it is empty for a draw of the schedule itself.
    """

    name: str
    distribution: Distribution
    decision: Decision
    pinned: bool = False
    owner: str = field(default="", compare=False)

    @property
    def title(self) -> str:
        """What a report calls it."""
        return self.owner or self.name


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule of a space that was left out on `subject`, because one of its steps was refused."""

    rule: str
    subject: str
    refusal: ScheduleRefusal = field(compare=False, repr=False)

    def diagnostic(self) -> Diagnostic:
        """The warning at the refused step, which says that the rule is left out."""
        found = refusal_diagnostic(self.refusal)
        note = Note("note", f"rule `{self.rule}` is left out on `{self.subject}`; a rule asks first, in its `when`")
        return replace(found, notes=(*found.notes, note), severity=Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Trace:
    """`text` is a `schedule` item that expands to the same program, byte for byte; `program` is the scheduled program.

    `draws` are those of the text. `undone` are those of steps that were undone since one of them was refused, of a rule or in
    a `try`. The text does not depend on them, but which steps were undone may, so they are among the `decisions`.
    `modules` are the names of the modules that were applied, each once, in order.
    """

    name: str
    compute: str
    lines: tuple[str, ...]
    draws: tuple[Draw, ...]
    program: Program = field(repr=False)
    refused: tuple[Refused, ...] = ()
    modules: tuple[str, ...] = field(default=(), compare=False)
    undone: tuple[Draw, ...] = ()

    @property
    def text(self) -> str:
        return self._text(self.lines)

    @property
    def titled(self) -> str:
        """The text with a comment behind each draw of a module, which says whose it is."""
        owners = {f"let {d.name} ~": d.owner for d in self.draws if d.owner}
        begins = [" ".join(line.split(" ", 3)[:3]) for line in self.lines]
        return self._text(
            f"{line}  // {owners[begin]}" if begin in owners else line
            for begin, line in zip(begins, self.lines, strict=True)
        )

    def _text(self, lines: Iterable[str]) -> str:
        body = "".join(f"    {line}\n" for line in lines)
        return f"schedule {self.name} for {self.compute} {{\n{body}}}\n"

    def __str__(self) -> str:
        return self.text

    @property
    def decided(self) -> tuple[Draw, ...]:
        """All draws that were decided."""
        return (*self.draws, *self.undone)

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """With these, the space makes this trace again."""
        return {d.name: d.decision for d in self.decided}

    @property
    def open_draws(self) -> tuple[Draw, ...]:
        """The draws that a search may decide, since they are not pinned."""
        return tuple(d for d in self.decided if not d.pinned)
