"""Findings of a run, with the files that were checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.diagnostic import Diagnostic, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic, and the file whose check reported it."""

    checked: str
    diagnostic: Diagnostic

    @property
    def file(self) -> str:
        """The file of its span: the checked file, or one that it uses."""
        span = self.diagnostic.span
        return self.checked if span is None else span.source.name

    def places(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Line and column of its start and end, counted from 1."""
        span = self.diagnostic.span
        return None if span is None else (span.source.line_column(span.start), span.source.line_column(span.end))

    def text(self) -> str:
        """The message, the label beside the underline, and the notes."""
        d = self.diagnostic
        notes = [f"{n.kind}: {n.text}" for n in d.notes]
        return "\n".join([f"{d.message}: {d.label}" if d.label else d.message, *notes])


def count(findings: Sequence[Finding], severity: Severity) -> int:
    return sum(f.diagnostic.severity is severity for f in findings)
