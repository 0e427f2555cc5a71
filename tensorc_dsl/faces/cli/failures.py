"""The ways in which a command ends, each with its message and its exit status."""

from __future__ import annotations

import errno
import os
import re
import resource
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum

import click

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.visible import visible, visible_line
from tensorc_dsl.faces.cli.options import in_order, settings
from tensorc_dsl.faces.report.terminal import NO_OUTPUT, say, show_diagnostics, show_foreign

ISSUES = "please report it with the command, the input files and what `--debug` shows"


@problem("E0927", "the system gives this process no more {what}", help="{repair}, and run the command again")
def EXHAUSTED(*, what: str, repair: str) -> None: ...


_EXHAUSTED = {
    errno.EMFILE: ("open files", "raise the limit, `ulimit -n 1024`"),
    errno.ENFILE: ("open files", "close other programs"),
    errno.EAGAIN: ("processes or threads", "raise the limit, `ulimit -u`, or use fewer threads, `--threads 1`"),
    errno.ENOSPC: ("room on a disk", "make room, or write to another disk"),
    errno.ENOMEM: ("memory", "close other programs, or raise the limit, `ulimit -v`"),
}
"""What an error of the system says is used up, and how there is more."""


def exhausted(e: BaseException) -> Diagnostic | None:
    """The finding for an exception about an exhausted resource of the system; None for any other.

    `RuntimeError` is what Python raises for a thread that cannot be started.
    """
    number = e.errno if isinstance(e, OSError) else None
    if isinstance(e, MemoryError) or _unmapped(e):
        number = errno.ENOMEM
    if isinstance(e, RuntimeError) and str(e) == "can't start new thread":
        number = errno.EAGAIN
    if number not in _EXHAUSTED:
        return None
    what, repair = _EXHAUSTED[number]
    return EXHAUSTED(None, what=what, repair=repair)


_UNMAPPED = re.compile("failed to map segment|cannot allocate memory|cannot apply additional memory", re.IGNORECASE)
"""The message of the dynamic linker for a library for which there is no memory."""


def _unmapped(e: BaseException) -> bool:
    """Whether a library could not be loaded for lack of memory. llvmlite does not say why it could not load its own."""
    chain: list[BaseException] = []
    at: BaseException | None = e
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return any(
        isinstance(x, ImportError | OSError) and (_UNMAPPED.search(str(x)) or (limited and "libllvmlite" in str(x)))
        for x in chain
    )


class ExitCode(IntEnum):
    """The exit status of a command; one that a signal ends has 128 plus the number of the signal."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    NO_CANDIDATE = 3
    INTERNAL = 4
    UNPROVED = 5


@contextmanager
def spelled_out() -> Generator[None, None, None]:
    """A context in which control characters in click's usage errors, which click prints itself, are spelled out."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError as e:
        vars(e)["message"] = visible(e.message)  # a whole page, whose lines stay lines
        raise
    except click.ClickException as e:
        vars(e)["message"] = visible_line(e.message)  # the attribute is declared final
        raise


@contextmanager
def printed() -> Generator[None, None, None]:
    """A context in which a version or a page of help that cannot be printed is a finding.

    click prints them while it reads the command line, before there is a context.
    """
    try:
        yield
    except TschedError as e:
        show_diagnostics(*e.diagnostics)
        sys.exit(ExitCode.FINDINGS)
    except BrokenPipeError:
        _discard_output()
        sys.exit(ExitCode.FINDINGS)
    except OSError as e:
        _discard_output()
        show_diagnostics(NO_OUTPUT(None, reason=(e.strerror or str(e)).lower()))
        sys.exit(ExitCode.FINDINGS)


def _discard_output() -> None:
    """Let what is still to be written vanish: Python would report it again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def guarded(ctx: click.Context) -> Generator[None, None, None]:
    """A context that exits with the right status and no traceback for all exceptions; click's own exits pass through."""
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
        _discard_output()  # its reader is gone
        ctx.exit(ExitCode.FINDINGS)
    except Exception as e:
        debug = settings(ctx).debug
        if debug:
            show_foreign(traceback.format_exc().rstrip())
        if (found := exhausted(e)) is not None:
            if isinstance(e, OSError) and e.errno == errno.ENOSPC:
                _discard_output()
            show_diagnostics(found)
            ctx.exit(ExitCode.FINDINGS)
        show_foreign(f"internal error: {type(e).__name__}: {str(e) or 'no message'}")
        say(f"this is a bug in tensorc-dsl; {ISSUES}", err=True)
        ctx.exit(ExitCode.INTERNAL)
