"""The only way to print: all output goes through here, and no text can control the terminal. Findings are also formatted
for programs: JSON, SARIF, GitHub's commands.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO
from urllib.parse import quote

import click

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError, problem, render
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.visible import visible, visible_line

# Colours rendered diagnostics: the text is unchanged, and control sequences surround its parts.


_RESET = "\x1b[0m"
_BOLD, _RED, _YELLOW, _BLUE, _CYAN = "\x1b[1m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[36m"


def paint(diagnostic: Diagnostic) -> str:
    """The diagnostic as rendered by `render`, in the colours of rustc."""
    head, *rest = render(diagnostic).split("\n")
    severity, _, message = head.partition(":")
    signal = _YELLOW if diagnostic.severity == "warning" else _RED
    return "\n".join([f"{signal}{severity}{_RESET}{_BOLD}:{message}{_RESET}", *(_line(line, signal) for line in rest)])


def _line(line: str, signal: str) -> str:
    if match := re.match(r"^( *)(-->)(.*)$", line):
        return f"{match[1]}{_BLUE}{match[2]}{_RESET}{match[3]}"
    if match := re.match(r"^( *\|)(\s*)(\^+)(.*)$", line):
        return f"{_BLUE}{match[1]}{_RESET}{match[2]}{signal}{match[3]}{match[4]}{_RESET}"
    if match := re.match(r"^( *\d* \|)(.*)$", line):
        return f"{_BLUE}{match[1]}{_RESET}{match[2]}"
    if match := re.match(r"^( *)(= [^:]+:)(.*)$", line):
        return f"{match[1]}{_CYAN}{match[2]}{_RESET}{match[3]}"
    return line


# The only way to print: all output goes through here, and no text can control the terminal.
#
# Only the control sequences of `paint` are emitted; control characters in names, files and output of other programs are
# spelled out. The content of a file is written unchanged into files and pipes, and spelled out on a terminal.


@problem("E0903", "cannot write to standard output: {reason}", help="make room, or let it go to a file on another disk")
def NO_OUTPUT(*, reason: str) -> None: ...


def say(line: str, *, err: bool = False) -> None:
    """Print one line, with line ends in it spelled out."""
    _print(visible_line(line), err)


def show(text: str, *, err: bool = False) -> None:
    """Print lines; names in them must have been through `visible_line`, so that they contain no line ends."""
    _print(visible(text), err)


def show_foreign(text: str) -> None:
    """Print text of another program or a bug on standard error; only its first line begins at the margin."""
    _print(visible(text).replace("\n", "\n    "), err=True)


def show_diagnostics(*diagnostics: Diagnostic) -> None:
    """Print each on standard error, with an empty line between them."""
    _print("\n\n".join(map(paint, diagnostics)), err=True)


def show_object(value: Any, *, indent: int | None = None) -> None:
    """Print JSON in ASCII, so that a terminal shows it unchanged."""
    _print(json.dumps(value, indent=indent))


def write(content: str) -> None:
    """Print the content of a file: unchanged, in UTF-8, unless the output is a terminal."""
    if is_terminal():
        _print(visible(content), newline=False)
    else:
        with _unwritten():
            click.echo(content.encode(), nl=False)


def print_markdown(page: str) -> None:
    """Print Markdown, formatted and coloured."""
    from rich.console import Console  # slow to load
    from rich.markdown import Markdown
    from rich.theme import Theme

    with _unwritten():
        theme = Theme({"markdown.code": "bold cyan"})  # of rich's own, the background is black on light terminals too
        code_theme = "ansi_light" if _is_light() else "ansi_dark"
        Console(force_terminal=True, theme=theme).print(Markdown(visible(page), code_theme=code_theme))


def _is_light() -> bool:
    """Whether the terminal says that its background is light: COLORFGBG has the numbers of its two colours."""
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


def follow(line: str, out: TextIO) -> None:
    """Print a line of progress to a stream, and flush it. A stream that takes none is no error."""
    with suppress(OSError):
        print(visible_line(line), file=out, flush=True)


def begin(line: str) -> None:
    """Print on standard error what begins and takes a while, if somebody watches on a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        say(line, err=True)


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None if it is none."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def is_dumb() -> bool:
    """Whether the terminal overwrites nothing and has no colours, by TERM."""
    return os.environ.get("TERM") in ("dumb", "unknown")


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    stream = _stream(err=False)
    return stream is not None and stream.isatty()


def _stream(err: bool) -> TextIO | None:
    """The stream; None if it was closed at the start."""
    return sys.stderr if err else sys.stdout


def _print(text: str, err: bool = False, *, newline: bool = True) -> None:
    stream = _stream(err)
    if stream is None:
        return
    # A character that the stream's encoding lacks is printed as its number.
    shown = text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    with suppress(OSError) if err else _unwritten():
        click.echo(shown, err=err, nl=newline)


@contextmanager
def _unwritten() -> Generator[None]:
    """An error is reported if results cannot be written, but not if the reader has closed the pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        # Python would try once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise TschedError(NO_OUTPUT(None, reason=(e.strerror or str(e)).lower())) from e


# Findings of a run, with the files that were checked.


@frozen
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
