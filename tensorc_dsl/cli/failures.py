"""How a command ends: every way out has its message and its exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum

import click

from tensorc_dsl.cli.options import settings
from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.report.paint import paint

ISSUES = "please report it with the command, the input files and what `--debug` shows"


class ExitCode(IntEnum):
    OK = 0
    FINDINGS = 1
    USAGE = 2
    NO_CANDIDATE = 3
    INTERNAL = 4
    INTERRUPTED = 130


def show_diagnostics(*diagnostics: Diagnostic) -> None:
    """Each on standard error, with a line between them."""
    click.echo("\n\n".join(paint(d) for d in diagnostics), err=True)


@contextmanager
def guarded(ctx: click.Context) -> Generator[None, None, None]:
    """Leave with the right status and no traceback, whatever happens inside; click's own exits pass through."""
    try:
        yield
    except (click.exceptions.Exit, click.ClickException):
        raise
    except TschedError as e:
        show_diagnostics(*e.diagnostics)
        ctx.exit(ExitCode.FINDINGS)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        ctx.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ctx.exit(ExitCode.FINDINGS)
    except Exception as e:
        debug = settings(ctx).debug
        if debug:
            click.echo(traceback.format_exc().rstrip(), err=True)
        click.echo(f"internal error: {type(e).__name__}: {str(e) or 'no message'}", err=True)
        click.echo(f"this is a bug in tensorc-dsl; {ISSUES}", err=True)
        ctx.exit(ExitCode.INTERNAL)
