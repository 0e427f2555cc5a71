"""The program as it stands after the step at the cursor, with the decisions of the best record, or others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from lsprotocol import types as lsp

from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.records import Records, space_of
from tensorc_dsl.interp.expand import Late, Stand, Watched
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import preferring, prior, shown
from tensorc_dsl.syntax import tree as t

COMMAND = "tensorc-dsl.programAfterStep"

MOST_TASKS = 16
"""The number of tasks of a file that are expanded to find one that takes the step."""


SECONDS = 0.05
"""An expansion that is made to complete a word takes no longer."""


@dataclass(frozen=True, slots=True)
class After:
    """`program` is the text of the program; `step` the range of the statement, None before the first one.

    `times` says how often the task takes the step: the program is that after the last time. `draws` are the decisions up to
    the end, with what else each can be; `problem` is why the expansion ended early, if it did.
    """

    task: str
    program: str
    step: lsp.Range | None
    times: int
    draws: list[dict[str, str]]
    problem: str

    def data(self) -> dict[str, object]:
        """As JSON, in the names of the protocol."""
        at = self.step
        where = at and {
            "start": {"line": at.start.line, "character": at.start.character},
            "end": {"line": at.end.line, "character": at.end.character},
        }
        return {
            "task": self.task, "program": self.program, "step": where, "times": self.times, "draws": self.draws,
            "problem": self.problem,
        }  # fmt: skip


def program_after(
    analysis: Analysis,
    position: lsp.Position,
    records: Records,
    task: str | None = None,
    decisions: Mapping[str, Decision] | None = None,
) -> After | None:
    """The program after the step at a position, for the task of that name, or the first one that takes the step; None if no
    task does. `decisions` replace those of the best record; draws that neither decides are drawn with seed 0.
    """
    offset = analysis.text.offset(position)
    item = analysis.item_at(offset)
    for name in _tasks(analysis, item, task):
        watched = _watched(analysis, name, records, decisions or {})
        if watched is None:
            continue
        own = [s for s in watched.stands if item is not None and _inside(s, item)]
        before = [s for s in own if analysis.start(s.span) <= offset]
        if isinstance(item, t.TaskDef):
            return _after(analysis, str(name.name), watched, watched.stands[-1:])
        if not own and not (isinstance(item, t.ScheduleDef) and watched.failure):
            continue
        # The innermost statement around the cursor; else the last one above.
        around = [s for s in before if offset <= analysis.end(s.span)]
        best = max(around or before, key=lambda s: (analysis.start(s.span), -analysis.end(s.span)), default=None)
        return _after(analysis, str(name.name), watched, [s for s in own if best and s.span == best.span])
    return None


def program_before(analysis: Analysis, offset: int, records: Records) -> Program | None:
    """The program before the step of a schedule or of a module that is written at an offset.

    None without a task that takes the steps around it, and if its expansion takes long. Where a module is applied to several
    blocks, the program is that of the last one to which the steps above are applied.
    """
    item = analysis.item_at(offset)
    until = time.monotonic() + SECONDS
    if not isinstance(item, t.ScheduleDef | t.ModuleDef):
        return None
    for name in _tasks(analysis, item, None):
        try:
            watched = _watched(analysis, name, records, {}, lambda: time.monotonic() > until)
        except Late:
            return None
        if watched is None:
            continue
        programs = [watched.start, *(s.program for s in watched.stands)]
        own = [n for n, s in enumerate(watched.stands) if _inside(s, item)]
        above = [n for n in own if analysis.end(watched.stands[n].span) < offset]
        if above:
            return programs[above[-1] + 1]
        if own or isinstance(item, t.ScheduleDef):
            return programs[own[0]] if own else watched.start
    return None


def _tasks(analysis: Analysis, item: t.Item | None, wanted: str | None) -> Iterator[t.TaskDef]:
    """The tasks that may take a step of the item, the likeliest first."""
    tasks = [x for x in analysis.checked.tasks.values() if analysis.is_own(x.span) and wanted in (None, str(x.name))]
    if isinstance(item, t.TaskDef):
        tasks = [x for x in tasks if x.name == item.name]
    if isinstance(item, t.ScheduleDef):
        tasks = [x for x in tasks if x.compute == item.compute and x.with_ in (None, item.name)]
    yield from tasks[:MOST_TASKS]


def _watched(
    analysis: Analysis,
    task: t.TaskDef,
    records: Records,
    decisions: Mapping[str, Decision],
    is_late: Callable[[], bool] = lambda: False,
) -> Watched | None:
    tuned = records.tuned(analysis, task)
    space = space_of(analysis, task, None if tuned is None else tuned.threads)
    if space is None:
        return None
    known = {**({} if tuned is None else tuned.best.decisions), **decisions}
    return space.watch(preferring(known, prior(np.random.default_rng(0))), is_late)


def _inside(s: Stand, item: t.Item) -> bool:
    return s.span.source is item.span.source and item.span.start <= s.span.start < item.span.end


def _after(analysis: Analysis, task: str, watched: Watched, stands: list[Stand]) -> After:
    program = stands[-1].program if stands else watched.start
    at = stands[-1].span if stands else None
    draws = [
        {"name": d.name, "value": shown(d.decision), "legal": d.distribution.describe()} for _, d in watched.places
    ]
    step = None if at is None or not analysis.is_own(at) else analysis.text.range(analysis.start(at), analysis.end(at))
    return After(task, format_program(program), step, len(stands), draws, watched.problem)
