"""Code lenses above each task: tune it, run it, show its program; and what its best record says."""

from __future__ import annotations

from lsprotocol import types as lsp

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.records import Records, space_of
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.tuning.machine.roof import GLANCE, Roof, roof_of

TUNE, RUN, SHOW = "tensorc-dsl.tune", "tensorc-dsl.run", "tensorc-dsl.show"


def code_lenses(analysis: Analysis) -> list[lsp.CodeLens]:
    """The lenses of all tasks; `resolve` fills in what the records say."""
    found: list[lsp.CodeLens] = []
    for task in analysis.items:
        if not isinstance(task, t.TaskDef):
            continue
        at = analysis.text.range(analysis.start(task.name.span), analysis.end(task.name.span))
        name = str(task.name)
        for title, command in (("tune", TUNE), ("run", RUN), ("show program", SHOW)):
            found.append(lsp.CodeLens(at, lsp.Command(title, command, arguments=[analysis.uri, name])))
        found.append(lsp.CodeLens(at, data={"uri": analysis.uri, "task": name}))
    return found


def best_of(analysis: Analysis, name: str, records: Records, roofs: dict[str, Roof | None]) -> str:
    """The title of the last lens of a task: its best time, and the share of what this machine can do, or that there is none.

    The roof of a task is measured once; `roofs` has those that are known.
    """
    task = analysis.checked.tasks.get(name)
    tuned = None if task is None else records.tuned(analysis, task)
    if task is None or tuned is None or tuned.best.seconds is None:
        return "not tuned on this machine"
    seconds = tuned.best.seconds
    if tuned.key not in roofs:
        roofs[tuned.key] = _roof(analysis, task, tuned.threads)
    roof = roofs[tuned.key]
    share = None if roof is None else roof.share(seconds)
    of = "" if share is None or roof is None else f", {units.share(share)} of {roof.name}"
    return f"best {units.seconds(seconds)}{of}, {units.counted(tuned.threads, 'thread')}"


def _roof(analysis: Analysis, task: t.TaskDef, threads: int) -> Roof | None:
    space = space_of(analysis, task, threads)
    if space is None:
        return None
    try:
        return roof_of(space.program, space.target, threads, GLANCE)
    except TschedError:
        return None  # no code can be made for the target
