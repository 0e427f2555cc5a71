"""Findings of a run, with the files in which they turned up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.diagnostic import Diagnostic, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic, and the file that was checked when it turned up."""

    checked: str
    diagnostic: Diagnostic

    @property
    def file(self) -> str:
        """Where it is: in the file that was checked, or in one that it uses."""
        span = self.diagnostic.span
        return self.checked if span is None else span.source.name

    def places(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Line and column of the start and of the end, from 1."""
        span = self.diagnostic.span
        return None if span is None else (span.source.line_column(span.start), span.source.line_column(span.end))

    def text(self) -> str:
        """The message, what stands beside the underline, and the notes."""
        d = self.diagnostic
        notes = [f"{n.kind}: {n.text}" for n in d.notes]
        return "\n".join([f"{d.message}: {d.label}" if d.label else d.message, *notes])


def count(findings: Sequence[Finding], severity: Severity) -> int:
    return sum(f.diagnostic.severity is severity for f in findings)
