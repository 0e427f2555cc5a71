"""Findings of a run with the files that were checked, and their formats for programs: JSON, SARIF, GitHub's commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tensorc_dsl.base.diagnostic import Diagnostic, Severity

# Findings of a run, with the files that were checked.


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


# Formats findings for programs: as JSON, as SARIF, and as GitHub's commands that annotate lines of a pull request.
#
# Lines and columns count from 1; columns count characters, and an end is the first character after the range.


SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(files: Sequence[str], findings: Sequence[Finding]) -> dict[str, Any]:
    """One object with all findings of a run."""
    return {
        "version": 1,
        "files": list(files),
        "errors": count(findings, Severity.ERROR),
        "warnings": count(findings, Severity.WARNING),
        "findings": [_object(f) for f in findings],
    }


def _object(f: Finding) -> dict[str, Any]:
    d, places = f.diagnostic, f.places()
    start, end = places or (None, None)
    return {
        "code": d.code,
        "severity": str(d.severity),
        "message": d.message,
        "label": d.label,
        "file": f.file,
        "start": start and {"line": start[0], "column": start[1]},
        "end": end and {"line": end[0], "column": end[1]},
        "notes": [{"kind": n.kind, "text": n.text} for n in d.notes],
    }


def as_sarif(findings: Sequence[Finding], version: str) -> dict[str, Any]:
    """A SARIF 2.1.0 log with one run of this version of the tool."""
    codes = sorted({f.diagnostic.code for f in findings})
    driver = {"name": "tensorc-dsl", "version": version, "rules": [{"id": code} for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(f, codes) for f in findings],
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(f: Finding, codes: list[str]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(os.fsencode(f.file))}}
    if places := f.places():
        (line, column), (last, behind) = places
        place["region"] = {"startLine": line, "startColumn": column, "endLine": last, "endColumn": behind}
    return {
        "ruleId": f.diagnostic.code,
        "ruleIndex": codes.index(f.diagnostic.code),
        "level": str(f.diagnostic.severity),
        "message": {"text": f.text()},
        "locations": [{"physicalLocation": place}],
    }


def as_github(findings: Sequence[Finding]) -> str:
    """One line per finding."""
    return "\n".join(map(_command, findings))


def _command(f: Finding) -> str:
    properties = {"file": f.file}
    if places := f.places():
        (line, column), (last, behind) = places
        properties |= {"line": str(line), "col": str(column), "endLine": str(last), "endColumn": str(behind)}
    properties["title"] = f"tensorc-dsl {f.diagnostic.code}"
    listed = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
    return f"::{f.diagnostic.severity} {listed}::{_escaped(f.text(), '')}"


def _escaped(text: str, signs: str) -> str:
    for sign in ("%", "\r", "\n", *signs):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
