"""The one door to the terminal: whatever is printed goes through here, and nothing in it can act on the terminal.

Only the colours of `paint` come from us; what names, files and other programs bring is spelled out. What is the content of a
file goes into files and pipes as it is, byte for byte, and to a terminal spelled out too.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

import click

from tensorc_dsl.diagnostic import Diagnostic
from tensorc_dsl.report.paint import paint
from tensorc_dsl.visible import visible, visible_line


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
    if sys.stdout.isatty():
        _print(visible(content), newline=False)
    else:
        click.echo(content.encode(), nl=False)


def show_markdown(page: str) -> None:
    """Print Markdown, laid out and coloured."""
    from rich.console import Console  # slow to load
    from rich.markdown import Markdown

    Console(force_terminal=True).print(Markdown(visible(page), code_theme="ansi_dark"))


def follow(line: str, out: TextIO) -> None:
    """Print a line to a stream that tells how something goes on, at once."""
    print(visible_line(line), file=out, flush=True)


def _print(text: str, err: bool = False, *, newline: bool = True) -> None:
    encoding = (sys.stderr if err else sys.stdout).encoding
    # A stream that lacks a character, such as one of ASCII, gets its number.
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, nl=newline)
