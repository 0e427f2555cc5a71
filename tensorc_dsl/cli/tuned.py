"""Finishes searches: writes the files, shows the results, and reports errors."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.report.terminal import say, show, show_diagnostics, show_object
from tensorc_dsl.visible import visible_line

if TYPE_CHECKING:
    from tensorc_dsl.api.tasks import Task
    from tensorc_dsl.report.ended import Ended
    from tensorc_dsl.trace.trace import Trace


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


def write_best(ended: Sequence[Ended], files: Sequence[Path], tasks: Sequence[Task], file: str) -> Written:
    """Write the best schedules of the tasks, which are in `file`, to their files."""
    from tensorc_dsl.report.files import write_text

    problems: list[tuple[Diagnostic, ...]] = []
    written: list[Path | None] = []
    for one, path, task in zip(ended, files, tasks, strict=True):
        problem: tuple[Diagnostic, ...] = ()
        found: Path | None = None
        if one.result.best is not None:
            try:
                write_text(path, one.header() + _body(task, one.result.best, path, file))
                found = path
            except TschedError as e:
                problem = e.diagnostics
        problems.append(problem)
        written.append(found)
    return Written(written, problems)


def _body(task: Task, best: Trace, path: Path, file: str) -> str:
    """The schedule as a file of its own, or else with the command that names its compute."""
    from tensorc_dsl.api.alone import alone

    whole = alone(task, best, path)
    if whole is not None:
        return whole
    command = shlex.join(("tensorc-dsl", "replay", file, task.name, str(path)))
    return f"// {visible_line(command)}\n{best.text}"


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


def tell_what_is_wrong(file: str, ended: Sequence[Ended]) -> None:
    """Raises WrongSchedule, a bug of tensorc-dsl, if a proof refutes a schedule, which is written to a file."""
    from tensorc_dsl.api.failures import WrongSchedule
    from tensorc_dsl.report.files import write_text

    for one in ended:
        for trace, report in one.result.wrong[:1]:
            wrong = Path(f"{one.task}.wrong.tsched")
            write_text(wrong, trace.text)
            command = shlex.join(("tensorc-dsl", "verify", file, one.task, str(wrong)))
            say(f"{wrong} holds a schedule that is wrong: `{command}`", err=True)
            raise WrongSchedule(trace, report.diagnostic)
