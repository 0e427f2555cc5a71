"""Refusals as diagnostics: what a document's tasks are refused when their first schedule is drawn.

The check of a text applies no step, so an illegal pin or a loop that cannot be parallel is found here. An expansion takes
longer than a check, so a server makes one when its writer pauses; a task is expanded again only if it means something else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from lsprotocol import types as lsp

from tensorc_dsl.api.drawing import refusals
from tensorc_dsl.base.diagnostic import Diagnostic, Severity
from tensorc_dsl.interp.expand import Late
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.features.diagnostics import SOURCE, told
from tensorc_dsl.lsp.records import space_of
from tensorc_dsl.syntax import tree as t

SECONDS = 0.5
"""The processor time in which a task is expanded; a server answers nothing meanwhile."""


def untried(analysis: Analysis) -> Iterator[t.TaskDef]:
    """The document's tasks of which it is not known what is refused; none in a text with errors."""
    if any(d.severity is Severity.ERROR for d, _ in analysis.findings()):
        return
    for task in analysis.checked.tasks.values():
        if analysis.is_own(task.span) and not _is_known(analysis, task):
            yield task


def try_task(analysis: Analysis, task: t.TaskDef, seconds: float = SECONDS) -> None:
    """Find out what is refused of a task, if it takes no more processor time than that."""
    space = space_of(analysis, task)
    found: tuple[Diagnostic, ...] | None = ()
    if space is not None:
        until = time.process_time() + seconds
        try:
            found = refusals(space, str(task.name), lambda: time.process_time() > until)
        except Late:
            found = None
    analysis.memory.entry(task).refusals = (_schedule(analysis, task), found)


def try_all(analysis: Analysis, seconds: float) -> None:
    """Find out what is refused of all tasks, in that processor time together."""
    until = time.process_time() + seconds
    for task in untried(analysis):
        try_task(analysis, task, until - time.process_time())


def refused(analysis: Analysis) -> list[lsp.Diagnostic]:
    """What is known to be refused, each place and reason once, and which tasks take too long to know it; in text order."""
    found: dict[Diagnostic, None] = {}
    late: list[lsp.Diagnostic] = []
    for task in analysis.checked.tasks.values():
        known = analysis.memory.entry(task).refusals if analysis.is_own(task.span) else None
        if known is None or not _is_known(analysis, task):
            continue
        if known[1] is None:
            at = analysis.text.range(analysis.start(task.name.span), analysis.end(task.name.span))
            said = f"a schedule of `{task.name}` takes long and is not tried here; `tensorc-dsl check --expand` does it"
            late.append(lsp.Diagnostic(at, said, lsp.DiagnosticSeverity.Information, source=SOURCE))
        for d in known[1] or ():
            # An editor shows the program at the step on demand.
            notes = tuple(n for n in d.notes if n.kind in ("help", "note"))
            found[replace(d, notes=notes)] = None
    places = ((d, None if d.span is None else analysis.place(d.span)) for d in found)
    every = [*(told(analysis, d, place) for d, place in places), *late]
    return sorted(every, key=lambda d: (d.range.start.line, d.range.start.character))


def _schedule(analysis: Analysis, task: t.TaskDef) -> object:
    """What stands for the meaning of the task's schedule or space: a task without `with` does not mention it."""
    space = space_of(analysis, task)
    return None if space is None else analysis.memory.entries.get(id(space.definition), space.definition)


def _is_known(analysis: Analysis, task: t.TaskDef) -> bool:
    known = analysis.memory.entry(task).refusals
    return known is not None and known[0] is _schedule(analysis, task)
