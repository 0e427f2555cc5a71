"""Finishes searches: writes the files, shows the results, and reports errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.report.terminal import say, show, show_diagnostics, show_object

if TYPE_CHECKING:
    from tensorc_dsl.api.tasks import Task
    from tensorc_dsl.outputs import Output
    from tensorc_dsl.report.ended import Ended


class Form(Enum):
    """How results are printed: for people, as one JSON value, or as the last of many lines."""

    TABLE = auto()
    OBJECT = auto()
    LINES = auto()


Problems = Sequence[tuple[Diagnostic, ...]]
"""For each search, the errors that prevented its file from being written."""


@dataclass(frozen=True, slots=True)
class Written:
    """The files of the best schedules, None where there is none, and the errors of each."""

    files: Sequence[Path | None]
    problems: Problems


def write_best(ended: Sequence[Ended], outputs: Sequence[Output], tasks: Sequence[Task]) -> Written:
    """Write the best schedules of the tasks to their files."""
    from tensorc_dsl.api.alone import written as text_of

    problems: list[tuple[Diagnostic, ...]] = []
    written: list[Path | None] = []
    for one, output, task in zip(ended, outputs, tasks, strict=True):
        problem: tuple[Diagnostic, ...] = ()
        found: Path | None = None
        if one.result.best is not None:
            try:
                output.write(one.header() + text_of(task, one.result.best, output.path))
                found = output.path
            except TschedError as e:
                problem = e.diagnostics
        problems.append(problem)
        written.append(found)
    return Written(written, problems)


def show_results(
    ended: Sequence[Ended], files: Sequence[Path | None], priors: Sequence[Path | None], form: Form
) -> None:
    """Print the results on standard output, with the files of the best schedules and of the priors."""
    facts = [one.facts(best, prior) for one, best, prior in zip(ended, files, priors, strict=True)]
    match form:
        case Form.TABLE:
            show("\n\n".join(one.table(path) for one, path in zip(ended, files, strict=True)))
        case Form.OBJECT if len(facts) == 1:
            show_object(facts[0])
        case Form.OBJECT:
            show_object(facts)
        case Form.LINES:
            for fact in facts:
                show_object({"event": "result"} | fact)


def tell_what_is_lost(ended: Sequence[Ended], problems: Problems) -> None:
    """Report schedules and records that could not be written, and print where else they are."""
    for one, problem in zip(ended, problems, strict=True):
        result = one.result
        if problem:
            show_diagnostics(*problem)
            if result.unkept is None:
                say("the schedule is among the records: `tensorc-dsl run` uses it", err=True)
            elif result.best is not None:
                say("the schedule, which may be in no file:", err=True)
                show(result.best.text, err=True)
    # One queue keeps the records of all searches.
    for unkept in [one.result.unkept for one in ended if one.result.unkept is not None][-1:]:
        show_diagnostics(*unkept.why)
        say(str(unkept), err=True)


def tell_what_is_wrong(ended: Sequence[Ended], tasks: Sequence[Task]) -> None:
    """Raises WrongSchedule, a bug of tensorc-dsl, if a proof refutes a schedule, which is written to a file."""
    from tensorc_dsl.api.failures import WrongSchedule
    from tensorc_dsl.outputs import Output

    for one, task in zip(ended, tasks, strict=True):
        for trace, report in one.result.wrong[:1]:
            wrong = Path(f"{one.task}.wrong.tsched")
            try:
                Output(wrong).write(trace.text)
                say(f"{wrong} holds a schedule that is wrong: `{task.command('verify', str(wrong))}`", err=True)
            except TschedError as e:
                show_diagnostics(*e.diagnostics)
            raise WrongSchedule(trace, report.diagnostic)
