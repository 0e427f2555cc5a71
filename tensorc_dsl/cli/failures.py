"""How a command ends: every way out has its message and its exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum

import click

from tensorc_dsl.cli.endings import in_order
from tensorc_dsl.cli.options import settings
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.report.terminal import say, show_diagnostics, show_foreign
from tensorc_dsl.visible import visible, visible_line

ISSUES = "please report it with the command, the input files and what `--debug` shows"


class ExitCode(IntEnum):
    """What a command ends with, unless a signal ends it: that is 128 and the signal's number."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    NO_CANDIDATE = 3
    INTERNAL = 4
    UNPROVED = 5


@contextmanager
def spelled_out() -> Generator[None, None, None]:
    """What click says of wrong usage, which it prints itself, cannot act on a terminal."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError as e:
        vars(e)["message"] = visible(e.message)  # a whole page, whose lines stay lines
        raise
    except click.ClickException as e:
        vars(e)["message"] = visible_line(e.message)  # it is final for who makes one
        raise


@contextmanager
def guarded(ctx: click.Context) -> Generator[None, None, None]:
    """Leave with the right status and no traceback, whatever happens inside; click's own exits pass through."""
    ending = settings(ctx).ending
    try:
        with spelled_out(), in_order(ending):
            yield
    except (click.exceptions.Exit, click.ClickException):
        raise
    except TschedError as e:
        show_diagnostics(*e.diagnostics)
        ctx.exit(ExitCode.FINDINGS)
    except (KeyboardInterrupt, click.Abort):
        say("interrupted", err=True)
        ctx.exit(ending.status)
    except BrokenPipeError:
        # The reader of our output has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ctx.exit(ExitCode.FINDINGS)
    except Exception as e:
        debug = settings(ctx).debug
        if debug:
            show_foreign(traceback.format_exc().rstrip(), err=True)
        show_foreign(f"internal error: {type(e).__name__}: {str(e) or 'no message'}", err=True)
        say(f"this is a bug in tensorc-dsl; {ISSUES}", err=True)
        ctx.exit(ExitCode.INTERNAL)
