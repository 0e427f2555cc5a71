"""Diagnostics: the error, its place, the facts, a repair; and their renderer."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, ParamSpec

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.base.visible import columns, visible, visible_line

EXCERPT = 400
"""The number of characters of a line that are shown."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


IN_FILE, BY_FILE = "line {line}, column {column}", "{file}:{line}:{column}"
"""The words for a place in the same file, and in any file."""


@frozen
class Note:
    """A line (or several) below the excerpt: `= help: …`.

    A note that refers to a place has it as `at`, and its text ends with it, in the words of `style`. The line is looked up
    when the text is asked for, since in an editor a place moves with the text above it.
    """

    kind: str
    words: str
    at: Span | None = None
    style: str = BY_FILE

    @property
    def text(self) -> str:
        if self.at is None:
            return self.words
        line, column = self.at.source.line_column(self.at.start)
        return f"{self.words}{self.style.format(file=self.at.source.name, line=line, column=column)}"


@frozen
class Diagnostic:
    """One finding. `label` stands beside the underline; `notes` follow the excerpt in order."""

    code: str
    message: str
    span: Span | None
    label: str = ""
    notes: tuple[Note, ...] = ()
    severity: Severity = Severity.ERROR


class TschedError(Exception):
    """Bad input, as one or more diagnostics. Bugs and failed candidates are other exceptions."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(visible("; ".join(f"{d.code}: {d.message}{_place(d)}" for d in diagnostics)))
        self.diagnostics = diagnostics
        self._notes: list[str] | None = None

    @property
    def __notes__(self) -> list[str]:
        """What a traceback prints below the message: each diagnostic with its excerpt and its repair."""
        if self._notes is None:
            self._notes = [render(d) for d in self.diagnostics]
        return self._notes

    @__notes__.setter
    def __notes__(self, notes: list[str]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Libraries that send exceptions elsewhere, as Dask does, set the notes of the copy."""
        self._notes = notes

    def __reduce__(self) -> tuple[type[TschedError], tuple[Diagnostic, ...]]:
        return type(self), self.diagnostics


def _place(d: Diagnostic) -> str:
    """The place as text for a traceback: ` (file.tsched:12:24)`."""
    if d.span is None:
        return ""
    line, column = d.span.source.line_column(d.span.start)
    return f" ({d.span.source.name}:{line}:{column})"


def help_note(text: str) -> Note:
    return Note("help", text)


Facts = ParamSpec("Facts")


@frozen
class Problem(Generic[Facts]):
    """A declared finding: `message`, `label` and `help` are format strings over its facts. One of code `W…` is a warning."""

    code: str
    message: str
    label: str
    help: str

    def __call__(
        self, span: Span | None, notes: tuple[Note, ...] = (), *_: Facts.args, **facts: Facts.kwargs
    ) -> Diagnostic:
        """The finding, at that place; `notes` stand before the repair."""
        helps = (help_note(self.help.format(**facts)),) if self.help else ()
        severity = Severity.WARNING if self.code.startswith("W") else Severity.ERROR
        label = self.label.format(**facts)
        return Diagnostic(self.code, self.message.format(**facts), span, label, (*notes, *helps), severity)


def problem(
    code: str, message: str, label: str = "", help: str = ""
) -> Callable[[Callable[Facts, None]], Problem[Facts]]:
    """Declare a finding above a function whose parameters are its facts, `def RANK(*, rank: int) -> None: ...`.

    A fact is a parameter of every call that makes the finding, so a type checker reports one that is missing, too many
    or of another kind. The fact `repair` is the help where that is not written here.
    """

    def declare(facts: Callable[Facts, None]) -> Problem[Facts]:
        return Problem(code, message, label, help or repair_of(facts))

    return declare


def repair_of(facts: Callable[..., None]) -> str:
    """The help of a finding with these facts that has no other: its `repair`, if that is one of them."""
    return "{repair}" if "repair" in facts.__annotations__ else ""


def render(d: Diagnostic) -> str:
    """The diagnostic as plain text, in the layout of rustc; `faces.report.terminal` colours it.

    error[E0312]: message
      --> file.tsched:12:24
       |
    12 |     let [i0, i1] = split(i, [3, _])
       |                             ^^^^^^ label
       = help: …
    """
    # Only the first line begins at the margin, so that a name with line ends cannot imitate another finding.
    head, *more = visible(d.message).split("\n")
    out = [f"{d.severity}[{d.code}]: {head}", *(f"    {line}".rstrip() for line in more)]
    margin = " "
    if d.span is not None:
        line, column = d.span.source.line_column(d.span.start)
        margin = " " * len(str(line))
        out += [
            f"{margin}--> {visible_line(d.span.source.name)}:{line}:{column}",
            f"{margin} |",
            *_excerpt(d.span, line, column, visible_line(d.label)),
        ]
    for note in d.notes:
        first, *rest = visible(note.text).split("\n")
        out.append(f"{margin} = {note.kind}: {first}".rstrip())
        out.extend(f"{margin}   {'    ' if r else ''}{r}".rstrip() for r in rest)
    return "\n".join(out)


def _excerpt(span: Span, line: int, column: int, label: str) -> tuple[str, str]:
    """The first line of a span, and the underline below it."""
    last, last_column = span.source.line_column(span.end)
    text = span.source.line(line)
    start = column - 1
    end = max(start, last_column - 1 if last == line else len(text))
    cut = max(0, start - EXCERPT // 2) if len(text) > EXCERPT else 0
    stop = min(len(text), cut + EXCERPT)
    before = ("…" if cut else "") + visible(text[cut:start])
    marked = visible(text[start : min(end, stop)])
    after = visible(text[min(end, stop) : stop]) + ("…" if stop < len(text) else "")
    gutter = f"{line} | "
    # Tabs are kept in front of the underline, so that it stands below the text on a terminal.
    lead = "\t".join(" " * columns(part) for part in before.split("\t"))
    width = max(1, columns(marked, len(gutter) + columns(before, len(gutter))))
    blank = " " * len(str(line))
    return gutter + before + marked + after, f"{blank} | {lead}{'^' * width}{' ' + label if label else ''}"
