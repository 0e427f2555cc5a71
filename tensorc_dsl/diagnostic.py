"""Diagnostics: what went wrong, where, the facts, a repair. A value and its one renderer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tensorc_dsl.source import Span


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Note:
    """A line (or several) below the excerpt: `= help: …`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `label` stands beside the underline; `notes` follow the excerpt in order."""

    code: str
    message: str
    span: Span | None
    label: str = ""
    notes: tuple[Note, ...] = ()
    severity: Severity = Severity.ERROR


class TschedError(Exception):
    """Bad input, as one or more diagnostics. Never a bug, never a failed candidate."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics


def help_note(text: str) -> Note:
    return Note("help", text)


@dataclass(frozen=True, slots=True)
class Problem:
    """A declared finding: `message`, `label` and `help` are format strings over the facts."""

    code: str
    message: str
    label: str = ""
    help: str = ""

    def __call__(self, span: Span | None, *, notes: tuple[Note, ...] = (), **facts: object) -> Diagnostic:
        helps = (help_note(self.help.format(**facts)),) if self.help else ()
        return Diagnostic(self.code, self.message.format(**facts), span, self.label.format(**facts), (*notes, *helps))


def render(d: Diagnostic) -> str:
    """The diagnostic as plain text, in the layout of rustc; the faces colour it.

    error[E0312]: message
      --> file.tsched:12:24
       |
    12 |     let [i0, i1] = split(i, [3, _])
       |                             ^^^^^^ label
       = help: …
    """
    out = [f"{d.severity}[{d.code}]: {d.message}"]
    margin = " "
    if d.span is not None:
        line, column = d.span.source.line_column(d.span.start)
        last, last_column = d.span.source.line_column(d.span.end)
        text = d.span.source.line(line)
        width = max(1, (last_column if last == line else len(text) + 1) - column)
        margin = " " * len(str(line))
        # Tabs stay tabs in the gutter so that the underline lands where the terminal puts the text.
        lead = "".join(ch if ch == "\t" else " " for ch in text[: column - 1])
        out += [
            f"{margin}--> {d.span.source.name}:{line}:{column}",
            f"{margin} |",
            f"{line} | {text}",
            f"{margin} | {lead}{'^' * width}{' ' + d.label if d.label else ''}",
        ]
    for note in d.notes:
        first, *rest = note.text.split("\n")
        out.append(f"{margin} = {note.kind}: {first}".rstrip())
        out.extend(f"{margin}   {'    ' if r else ''}{r}".rstrip() for r in rest)
    return "\n".join(out)
