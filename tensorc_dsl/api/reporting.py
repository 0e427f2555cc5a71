"""Gathers what the page of a task says: its records, what they teach, the roof of the machine, and the winner's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tensorc_dsl.api.insights import too_few
from tensorc_dsl.api.tasks import Task
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.report.page.figures import Figures, Insight, Side, Stage
from tensorc_dsl.source import Source
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.tuning.insight.study import TooFew, study
from tensorc_dsl.tuning.machine.roof import Roof, roof_of
from tensorc_dsl.tuning.records.trial import Trial


def figures(task: Task, records: Sequence[tuple[str, Sequence[Trial]]], command: tuple[str, ...]) -> Figures:
    """The page about one or two named sets of the task's records. `command` is the call of `tune` for the task.

    Takes seconds: the space is expanded some hundred times, and the roof of the machine is measured.
    """
    sides = tuple(Side.of(label, trials) for label, trials in records)
    found = study(task.model, task.name, [t for _, trials in records for t in trials])
    no_insight = too_few(task.name, found).message if isinstance(found, TooFew) else ""
    roof, no_roof = _roof(task)
    fastest = min((s.best for s in sides if s.best), key=lambda t: t.seconds or 0.0, default=None)
    best = None if fastest is None else _expanded(task, fastest)
    return Figures(
        task=task.name,
        machine=task.target.cpu,
        threads=task.threads,
        cache=fastest.cache if fastest is not None else "",
        sides=sides,
        roof=roof,
        no_roof=no_roof,
        insight=None if isinstance(found, TooFew) else Insight.of(found),
        no_insight=no_insight,
        command=command,
        default=_drawn(task),
        best=best if isinstance(best, Trace) else None,
        stages=() if best is None else _stages(task, best),
    )


def _roof(task: Task) -> tuple[Roof | None, str]:
    try:
        task.require_machine()
    except TschedError as e:
        return None, e.diagnostics[0].message
    return roof_of(task.program, task.target, task.threads), ""


def _drawn(task: Task) -> Trace | None:
    try:
        return task.sample(0)
    except TschedError:
        return None


def _expanded(task: Task, trial: Trial) -> Trace | str:
    """The schedule of a record; why it does not fit, if the task has changed since."""
    try:
        return task.expand(Source(f"<trial {trial.trial} of {trial.task}>", trial.trace))
    except TschedError as e:
        return e.diagnostics[0].message


def _stages(task: Task, best: Trace | str) -> tuple[Stage, ...]:
    """The texts of the winner, from its schedule to its assembly."""
    if isinstance(best, str):
        return (Stage("The schedule does not fit the task as it is now", "", best),)
    found = best

    def stage(title: str, make: Callable[[], str]) -> Stage:
        try:
            return Stage(title, make())
        except TschedError as e:
            return Stage(f"{title} cannot be shown", "", e.diagnostics[0].message)

    def code(name: str) -> str:
        return task.view(found, name)

    return (
        Stage("Its schedule, which `replay` takes", found.text),
        stage("The scheduled program", lambda: format_program(found.program)),
        stage("The loops that it makes", lambda: task.lowered_text(found)),
        *(stage(f"Its code: {about}", partial(code, name)) for name, about in task.backend.stages.items()),
    )
