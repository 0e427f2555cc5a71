"""`explain`: what the code of an error or a warning means."""

from __future__ import annotations

import re
import sys

import click
from click.shell_completion import CompletionItem

from tensorc_dsl.cli.options import common_options
from tensorc_dsl.diagnostic import Diagnostic, TschedError, help_note
from tensorc_dsl.report.terminal import say, show, show_markdown
from tensorc_dsl.resources import error_page, error_titles


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(c, help=title) for c, title in error_titles().items() if c.startswith(incomplete.upper())]


@click.command()
@click.argument("code", metavar="CODE", required=False, shell_complete=_complete)
@click.option("--list", "every", is_flag=True, help="Print all codes with their titles.")
@common_options
@click.pass_context
def explain(ctx: click.Context, code: str | None, every: bool) -> None:
    """Say what CODE means, such as E0312: the cause, an example, and how to repair it."""
    if every == (code is not None):
        raise click.UsageError("give a code, or --list")
    if code is None:
        for known, title in error_titles().items():
            say(f"{known}  {title}")
        return
    name, titles = code.upper(), error_titles()
    if name not in titles:
        from tensorc_dsl.syntax.names import did_you_mean

        near = did_you_mean(name, [c for c in titles if c[:4] == name[:4]] or titles)
        notes = [help_note(text) for text in (near, "`tensorc-dsl explain --list` shows all codes") if text]
        raise TschedError(Diagnostic("E0906", f"no error or warning has the code `{code}`", None, notes=tuple(notes)))
    # What stands behind a fence's language is for the tests of the pages.
    page = re.sub(r"^```(\w+) .*$", r"```\1", error_page(name), flags=re.MULTILINE)
    if ctx.color if ctx.color is not None else sys.stdout.isatty():
        show_markdown(page)
    else:
        show(page.rstrip("\n"))
