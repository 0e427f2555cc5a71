"""`explain`: describe the code of an error or a warning, or a word of the language."""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem

from tensorc_dsl.base.diagnostic import Note, TschedError, help_note, problem
from tensorc_dsl.base.resources import error_page, error_titles
from tensorc_dsl.faces.cli.options import common_options
from tensorc_dsl.faces.report.terminal import is_terminal, print_markdown, say, show

_CODE = re.compile(r"[EW]?\d+")


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tensorc_dsl.faces.report.entries import names  # only when a shell asks

    codes = [CompletionItem(c, help=title) for c, title in error_titles().items() if c.startswith(incomplete.upper())]
    return codes + [CompletionItem(n) for n in sorted(names()) if n.startswith(incomplete)]


@click.command()
@click.argument("name", metavar="NAME", required=False, shell_complete=_complete)
@click.option("--list", "every", is_flag=True, help="Print all codes with their titles.")
@common_options
@click.pass_context
def explain(ctx: click.Context, name: str | None, every: bool) -> None:
    """Say what NAME means: the code of an error, such as E0312, or a word of the language.

    Of an error: the cause, an example, and how to repair it. Words are primitives (`split`), draws, queries (`b.loops`),
    functions, reducers, what the standard library has (`matmul`, `std.cpu.default`), and terms of messages (`regret`).
    """
    if every == (name is not None):
        raise click.UsageError("give a name, or --list")
    if name is None:
        for known, title in error_titles().items():
            say(f"{known}  {title}")
        return
    page = _page(ctx, name)
    if ctx.color if ctx.color is not None else is_terminal():
        print_markdown(page)
    else:
        show(page.rstrip("\n"))


@problem("E0906", "no error or warning has the code `{name}`", help="`tensorc-dsl explain --list` shows all codes")
def NO_CODE(*, name: str) -> None: ...
@problem(
    "E0906",
    "there is no primitive, draw, query, function, item of `std` or term called `{name}`",
    help="`tensorc-dsl module list` shows what a `use` can bring, and `explain --list` the codes of errors",
)
def NO_NAME(*, name: str) -> None: ...


def _page(ctx: click.Context, name: str) -> str:
    """The page for a name, as Markdown. Raises TschedError (E0906) for an unknown name."""
    titles = error_titles()
    code = name.upper()
    if code in titles:
        # The options behind a fence's language are for the tests of the pages.
        return re.sub(r"^```(\w+) .*$", r"```\1", error_page(code), flags=re.MULTILINE)
    from tensorc_dsl.syntax.names import did_you_mean

    if _CODE.fullmatch(code):
        near = did_you_mean(code, [c for c in titles if c[:4] == code[:4]] or titles)
        raise TschedError(NO_CODE(None, _meant(near), name=name))
    from tensorc_dsl.faces.report.entries import entries, names

    if found := entries(name):
        return "\n\n".join(found) + "\n"
    commands = ctx.find_root().command
    if isinstance(commands, click.Group) and name in commands.list_commands(ctx):
        raise TschedError(
            NO_NAME(None, _meant(f"it is a command, which `tensorc-dsl {name} --help` describes"), name=name)
        )
    raise TschedError(NO_NAME(None, _meant(did_you_mean(name, names())), name=name))


def _meant(near: str) -> tuple[Note, ...]:
    return (help_note(near),) if near else ()
