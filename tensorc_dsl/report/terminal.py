"""The one door to the terminal: whatever is printed goes through here, and nothing in it can act on the terminal.

Only the colours of `paint` come from us; what names, files and other programs bring is spelled out. What is the content of a
file goes into files and pipes as it is, byte for byte, and to a terminal spelled out too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click

from tensorc_dsl.diagnostic import Diagnostic, Problem, TschedError
from tensorc_dsl.report.paint import paint
from tensorc_dsl.visible import visible, visible_line

NO_OUTPUT = Problem(
    "E0903", "cannot write to standard output: {reason}", help="make room, or let it go to a file on another disk"
)


def say(line: str, *, err: bool = False) -> None:
    """Print one line; a line end in it is spelled out."""
    _print(visible_line(line), err)


def show(text: str, *, err: bool = False) -> None:
    """Print lines; names in them have been through `visible_line`, else they might end one."""
    _print(visible(text), err)


def show_foreign(text: str, *, err: bool = False) -> None:
    """Print what another program or a bug said; only its first line begins at the margin."""
    _print(visible(text).replace("\n", "\n    "), err)


def show_diagnostics(*diagnostics: Diagnostic) -> None:
    """Each on standard error, with a line between them."""
    _print("\n\n".join(map(paint, diagnostics)), err=True)


def show_object(value: Any, *, indent: int | None = None) -> None:
    """Print JSON. It holds what there is, and says it in ASCII, so that a terminal shows it as it is."""
    _print(json.dumps(value, indent=indent))


def write(content: str) -> None:
    """Print what a file could hold: exactly that, in UTF-8 as files are, unless a terminal reads it."""
    if is_terminal():
        _print(visible(content), newline=False)
    else:
        with _unwritten():
            click.echo(content.encode(), nl=False)


def show_markdown(page: str) -> None:
    """Print Markdown, laid out and coloured."""
    from rich.console import Console  # slow to load
    from rich.markdown import Markdown

    with _unwritten():
        Console(force_terminal=True).print(Markdown(visible(page), code_theme="ansi_dark"))


def follow(line: str, out: TextIO) -> None:
    """Print a line to a stream that tells how something goes on, at once. Nothing ends for want of it."""
    with suppress(OSError):
        print(visible_line(line), file=out, flush=True)


def is_terminal() -> bool:
    """Whether somebody reads on a terminal what is printed."""
    stream = _stream(err=False)
    return stream is not None and stream.isatty()


def _stream(err: bool) -> TextIO | None:
    """None where it was closed before we began."""
    return sys.stderr if err else sys.stdout


def _print(text: str, err: bool = False, *, newline: bool = True) -> None:
    stream = _stream(err)
    if stream is None:
        return
    # A stream that lacks a character, such as one of ASCII, gets its number.
    shown = text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    with suppress(OSError) if err else _unwritten():
        click.echo(shown, err=err, nl=newline)


@contextmanager
def _unwritten() -> Generator[None]:
    """Results that cannot be written are told of; what a reader does not want is not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        # Python would try once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise TschedError(NO_OUTPUT(None, reason=(e.strerror or str(e)).lower())) from e
