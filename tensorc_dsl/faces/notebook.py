"""Notebooks: the cell magic `%%tsched`, and how tasks, kernels, programs, schedules and proofs are shown below a cell.

Nothing here computes or decides anything: `api` does. IPython is imported only by what IPython loads.
"""

from __future__ import annotations

import keyword
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from IPython.core.error import UsageError

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError, render
from tensorc_dsl.faces.api import Kernel, Task, TaskFile, loads
from tensorc_dsl.faces.api.kernel import describe
from tensorc_dsl.faces.api.schedules import refusals
from tensorc_dsl.faces.api.searching import Insight
from tensorc_dsl.faces.report.page import Markup, element, joined, lines
from tensorc_dsl.faces.report.recorded import importance_caveat, percent
from tensorc_dsl.faces.report.results import facts, verdict_line
from tensorc_dsl.faces.report.terminal import say, show_diagnostics
from tensorc_dsl.interp.expand import Late
from tensorc_dsl.ir.print import format_buffer, format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import Invalid, Report, Unproved, Valid
from tensorc_dsl.schedule.trace.trace import Trace, shown
from tensorc_dsl.syntax.highlight.lexer import TOKENS, TschedLexer
from tensorc_dsl.syntax.highlight.rules import Class

# Texts of the language as HTML, in the colours of the notebook around.


# Jupyter names the colours of its theme; elsewhere these are seen on light and on dark.
_KEYWORD = "var(--jp-mirror-editor-keyword-color, #b0408a)"
_DEFINITION = "var(--jp-mirror-editor-def-color, #7a6bd6)"
_BUILTIN = "var(--jp-mirror-editor-builtin-color, #2f80c0)"
_NUMBER = "var(--jp-mirror-editor-number-color, #2e8b57)"
_STRING = "var(--jp-mirror-editor-string-color, #4a7fb5)"
_COMMENT = "var(--jp-mirror-editor-comment-color, #7f8790)"
_DRAW = "var(--jp-mirror-editor-attribute-color, #c4691c)"

COLOURS: dict[Class, str] = {
    Class.COMMENT: _COMMENT,
    Class.DOC: _COMMENT,
    Class.KEYWORD: _KEYWORD,
    Class.CONSTANT: _KEYWORD,
    Class.NUMBER: _NUMBER,
    Class.STRING: _STRING,
    Class.ESCAPE: _NUMBER,
    Class.ANNOTATION: _STRING,
    Class.DEFINITION: _DEFINITION,
    Class.TYPE: _BUILTIN,
    Class.BUILTIN: _BUILTIN,
    Class.PRIMITIVE: _BUILTIN,
    Class.DRAW: _DRAW,
}
"""Classes that have a colour; other words have that of the text around."""

_CLASSES = {kind: cls for cls, kind in TOKENS.items()}


MONOSPACE = "margin: 0; line-height: 1.35; overflow-x: auto; font-family: var(--jp-code-font-family, monospace)"
"""The style of a text below a cell. Pages that nbconvert makes have no font of their own for it."""


def notebook_markup(text: str) -> Markup:
    """A text of the language, with its line ends."""
    parts: list[Markup] = []
    for _, kind, word in TschedLexer().get_tokens_unprocessed(text):
        colour = COLOURS.get(_CLASSES.get(kind, Class.NAME))
        parts.append(lines(word) if colour is None else element("span", lines(word), style=f"color: {colour}"))
    return element("pre", joined(parts), style=MONOSPACE)


# What a notebook shows of tasks, kernels, programs, schedules and proofs.


SHOWN_LINES = 400
"""Lines of a text that a cell shows."""


def file_html(file: TaskFile) -> str:
    """A row for each task; why there is none, where its space or target cannot be found."""
    if not file:
        return element("p", "no tasks")
    return _table(("task", "inputs", "outputs", "operations", "on"), [_row(file, name) for name in file])


def _row(file: TaskFile, name: str) -> Sequence[str]:
    try:
        return (name, *_facts(file[name]))
    except TschedError as e:
        return (name, e.diagnostics[0].message)


def _facts(task: Task) -> tuple[str, str, str, str]:
    inputs, outputs = (", ".join(map(format_buffer, some)) for some in (task.program.inputs, task.program.outputs))
    where = f"{units.counted(task.threads, 'thread')} of {task.target.cpu or task.target.kind}"
    return inputs, outputs, f"{task.flops:.3g}", where


def task_html(task: Task) -> str:
    """Its inputs and outputs, and the program that a schedule begins with."""
    inputs, outputs, operations, where = _facts(task)
    said = element("p", element("strong", task.name), f"({inputs}) → {outputs}: {operations} operations, on {where}")
    return element("div", said, _details("The program before its schedule", format_program(task.program)))


def trace_html(trace: Trace) -> str:
    """The draws with their values, the schedule, and the program that it makes."""
    rows = [(d.name, shown(d.decision), "pinned" if d.pinned else d.distribution.describe()) for d in trace.draws]
    draws = _table(("draw", "value", "can be"), rows) if rows else element("p", "no draws")
    made = _details("The program that it makes", format_program(trace.program))
    left_out = [element("pre", lines(render(rule.diagnostic())), style=MONOSPACE) for rule in trace.refused]
    return element("div", draws, notebook_markup(_cut(trace.text)), *left_out, made)


def program_html(program: Program) -> str:
    return notebook_markup(_cut(format_program(program)))


def kernel_html(kernel: Kernel) -> str:
    """What it computes, its time if it was measured, and its schedule."""
    time = "" if kernel.seconds is None else f": {units.seconds(kernel.seconds)}"
    origin = "" if kernel.origin is None else f"; schedule {describe(kernel.origin)}"
    where = f" on {units.counted(kernel.threads, 'thread')} of {kernel.target.cpu or kernel.target.kind}{origin}"
    said = element("p", element("strong", f"{kernel.task}{time}"), where)
    return element("div", said, _details("Its schedule", kernel.trace.text))


def insight_html(insight: Insight) -> str:
    """Each draw with its share of the variance, the value of the fastest trial, and the likeliest value of fast schedules."""
    likeliest = {one.name: one.values[0] for one in insight.posterior if one.values}
    rows = [
        (
            i.name, percent(i.total), percent(i.alone),
            shown(insight.best[i.name]) if i.name in insight.best else "",
            f"{shown(v.decision)}, {percent(v.posterior)}" if (v := likeliest.get(i.name)) else "",
        )
        for i in insight.importance
    ]  # fmt: skip
    found = _table(("draw", "of the variance", "alone", "best", "likeliest in fast schedules"), rows)
    return element("div", found, element("p", importance_caveat(insight.explained, insight.valid, insight.left_out)))


def report_html(report: Report) -> str:
    """The verdict of a proof, with the facts if it is not proved."""
    word, found = facts(report)
    if found is None:
        return element("p", element("strong", verdict_line(report)))
    return element("div", element("p", element("strong", word)), element("pre", lines(render(found)), style=MONOSPACE))


def _details(title: str, text: str) -> Markup:
    return element("details", element("summary", title), notebook_markup(_cut(text)))


def _cut(text: str) -> str:
    rows = text.splitlines(keepends=True)
    if len(rows) <= SHOWN_LINES:
        return text
    return f"{''.join(rows[:SHOWN_LINES])}// … and {units.counted(len(rows) - SHOWN_LINES, 'more line')}\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table; the last cell of a shorter row takes the rest of its width."""

    def cells(row: Sequence[str]) -> Markup:
        wide = len(head) - len(row) + 1
        *first, last = (element("td", text, style="text-align: left") for text in row)
        if wide > 1:
            last = element("td", row[-1], colspan=wide, style="text-align: left")
        return element("tr", *first, last)

    top = element("tr", *(element("th", text, style="text-align: left") for text in head))
    return element("table", element("thead", top), element("tbody", joined(map(cells, rows))))


SHOWN: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (TaskFile, file_html),
    (Task, task_html),
    (Trace, trace_html),
    (Program, program_html),
    (Kernel, kernel_html),
    (Insight, insight_html),
    *((kind, report_html) for kind in (Valid, Invalid, Unproved)),
)
"""The types that are shown, with the function that makes the HTML."""


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
