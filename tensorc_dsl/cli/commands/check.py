"""`check`: find what is wrong with files."""

from __future__ import annotations

import click

from tensorc_dsl.cli.failures import ExitCode, show_diagnostics
from tensorc_dsl.cli.options import common_options
from tensorc_dsl.diagnostic import Diagnostic, TschedError


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@common_options
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...]) -> None:
    """Check files and expand each of their tasks once; `-` is standard input.

    All findings are reported in one run, on standard error.
    """
    from tensorc_dsl.api import load

    found: list[Diagnostic] = []
    for name in files:
        own: list[Diagnostic] = []
        try:
            tasks = load(name)
            for task in tasks:
                try:
                    tasks[task].check()
                except TschedError as e:
                    own += e.diagnostics
            if not own:
                click.echo(f"{name}: ok, {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}")
        except TschedError as e:
            own += e.diagnostics
        found += [d for d in own if d not in found]
    if found:
        show_diagnostics(*found)
        count = f"{len(found)} finding{'s' * (len(found) != 1)}"
        click.echo(f"\n{count} in {len(files)} file{'s' * (len(files) != 1)}", err=True)
        ctx.exit(ExitCode.FINDINGS)
