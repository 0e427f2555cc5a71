"""The extension of IPython, `%load_ext tensorc_dsl`: the cell magic, and how values are shown."""

from __future__ import annotations

import keyword
import time
from typing import Any

from IPython.core.error import UsageError

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError, render
from tensorc_dsl.faces.api import TaskFile, loads
from tensorc_dsl.faces.api.drawing import refusals
from tensorc_dsl.faces.notebook.display import SHOWN
from tensorc_dsl.faces.report.terminal import say, show_diagnostics
from tensorc_dsl.interp.expand import Late

SECONDS = 2.0
"""The processor time in which the first schedules of a cell's tasks are drawn."""

Shell = Any
"""IPython's `InteractiveShell`, which has few types."""


class CellError(TschedError):
    """What is wrong in a cell. A notebook shows the findings alone: nothing of Python stands behind them."""

    def _render_traceback_(self) -> list[str]:
        return "\n\n".join(map(render, self.diagnostics)).split("\n")


def load(shell: Shell) -> None:
    """Add the magic to a shell, and have it show our values as HTML."""

    def tsched(line: str, cell: str) -> TaskFile:
        """%%tsched [NAME]: the tasks of the cell's text, which is then the value of NAME, too."""
        return read_cell(shell, line, cell)

    shell.register_magic_function(tsched, "cell")
    for kind, html in SHOWN:
        _formatter(shell).for_type(kind, html)


def unload(shell: Shell) -> None:
    """Take back what `load` added."""
    shell.magics_manager.magics["cell"].pop("tsched", None)
    for kind, _ in SHOWN:
        _formatter(shell).pop(kind, None)


def read_cell(shell: Shell, line: str, cell: str) -> TaskFile:
    """The tasks of a cell; warnings are printed, and what the first schedules of the tasks are refused.

    Raises CellError with all errors, and UsageError for what is no name.
    """
    name = line.strip()
    if name and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"%%tsched takes the name of a variable, and {name!r} is none")
    try:
        file = loads(cell, name=f"In[{shell.execution_count}]")
    except TschedError as e:
        raise CellError(*e.diagnostics) from None
    warnings = [d for d in file.checked.diagnostics if d.severity is Severity.WARNING]
    if found := [*warnings, *_refusals(file)]:
        show_diagnostics(*found)
    if name:
        shell.user_ns[name] = file
    return file


def _refusals(file: TaskFile) -> list[Diagnostic]:
    """What the first schedule of each task is refused, each place and reason once. Which tasks take longer than SECONDS
    is printed."""
    until = time.process_time() + SECONDS
    found: dict[Diagnostic, None] = {}
    for name in file:
        try:
            found |= dict.fromkeys(refusals(file[name].space, name, lambda: time.process_time() > until))
        except Late:
            say(f"a schedule of `{name}` takes long to make, and is not tried; `print(….sample(0))` does it", err=True)
        except TschedError:
            continue  # it has no space or no target, which its row says
    return list(found)


def _formatter(shell: Shell) -> Any:
    """What makes the HTML of values, by their types."""
    return shell.display_formatter.formatters["text/html"]
