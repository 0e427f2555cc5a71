"""What a notebook shows of tasks, kernels, programs, schedules and proofs, with texts in the colours around."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.faces.api import Kernel, Task, TaskFile
from tensorc_dsl.faces.api.insights import Insight
from tensorc_dsl.faces.api.kernel import describe
from tensorc_dsl.faces.report.importance import percent, trust
from tensorc_dsl.faces.report.page.markup import Markup, element, joined, lines
from tensorc_dsl.faces.report.results import facts, line
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


def coloured(text: str) -> Markup:
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
    return element("div", draws, coloured(_cut(trace.text)), *left_out, made)


def program_html(program: Program) -> str:
    return coloured(_cut(format_program(program)))


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
    return element("div", found, element("p", trust(insight.explained, insight.valid, insight.left_out)))


def report_html(report: Report) -> str:
    """The verdict of a proof, with the facts if it is not proved."""
    word, found = facts(report)
    if found is None:
        return element("p", element("strong", line(report)))
    return element("div", element("p", element("strong", word)), element("pre", lines(render(found)), style=MONOSPACE))


def _details(title: str, text: str) -> Markup:
    return element("details", element("summary", title), coloured(_cut(text)))


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
