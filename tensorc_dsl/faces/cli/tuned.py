"""Hears of searches, and finishes them: writes the files, shows the results, and reports errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.faces.cli.options import SUFFIX, Ending, interruptible, settings
from tensorc_dsl.faces.report.terminal import say, show, show_diagnostics, show_object

if TYPE_CHECKING:
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.faces.api import Board, Pool, TaskFile, events
    from tensorc_dsl.faces.api.tasks import Task
    from tensorc_dsl.faces.report.ended import Ended, EndedCounting
    from tensorc_dsl.faces.report.progress import Together
    from tensorc_dsl.schedule.trace.trace import Trace
    from tensorc_dsl.tuning.measure.outcome import Quantity
    from tensorc_dsl.tuning.records.database import Queue


class Form(Enum):
    """How results are printed: for people, as one JSON value, or as the last of many lines."""

    TABLE = auto()
    OBJECT = auto()
    LINES = auto()


# What hears the events of searches.


def heard(
    together: Together, names: Sequence[str], ending: Ending, form: Form, quantity: Quantity
) -> list[events.Listener]:
    """What hears the events of each search: what shows them all together, and what prints each as a line of JSON."""
    from tensorc_dsl.faces.report.ended import printing

    listeners = [together.listener(n) for n in range(len(names))]
    if form is Form.LINES:
        listeners = [
            _both(listener, printing(name, show_object, quantity))
            for name, listener in zip(names, listeners, strict=True)
        ]
    return _holding(listeners, ending)


def _both(one: events.Listener, other: events.Listener) -> events.Listener:
    def tell(event: events.Event) -> None:
        one(event)
        other(event)

    return tell


def _holding(listeners: Sequence[events.Listener], ending: Ending) -> list[events.Listener]:
    """The listeners; when all searches are over, the ending is held, and their results survive the end of their processes.

    Python drops an exception in a destructor, and so the KeyboardInterrupt of a signal that arrives there: a search
    that goes on after it is interrupted again.
    """
    from tensorc_dsl.faces.api import events

    running = len(listeners)

    def held(listener: events.Listener) -> events.Listener:
        def hear(event: events.Event) -> None:
            nonlocal running
            running -= isinstance(event, events.Finished)
            ending.held |= not running
            listener(event)
            if ending.told and isinstance(event, (events.Proposed, events.Measured)):
                raise KeyboardInterrupt

        return hear

    return [held(one) for one in listeners]


# The files of the best schedules.


@dataclass(slots=True)
class Written:
    """What became of a search's file: where the best schedule is, None where it is in none; whether that is the one that the
    file had before; what there is to be said of it; the errors that prevented it from being written."""

    path: Path | None = None
    kept: bool = False
    note: str = ""
    problem: tuple[Diagnostic, ...] = ()


Judge = Callable[["Trace"], tuple[bool, str]]
"""Whether a file keeps the schedule that it has, and the reason."""


def replace_schedule(output: Output, task: Task, found: Trace, text: str, judge: Judge | None) -> Written:
    """Write the text with the schedule that was found, unless the output has one for the task that is kept.

    Without a `judge` none is kept. What another process writes meanwhile is judged, too.
    Raises TschedError (E0903, E0904, E0932).
    """
    from tensorc_dsl.faces.api.schedules import schedule_in
    from tensorc_dsl.faces.report.files import MAX_BYTES

    while True:
        before = output.content(MAX_BYTES)
        held = schedule_in(before, task, output.path) if before.strip() else None
        note = ""
        if isinstance(held, str):
            note = f"replaced: the file held {held}"
        elif held is not None and held.text != found.text:
            kept, reason = judge(held) if judge is not None else (False, "the file held another schedule for the task")
            if kept:
                return Written(output.path, kept=True, note=f"kept: {reason}; `--no-keep-better` replaces it")
            note = f"replaced: {reason}"
        with output.locked():
            if output.content(MAX_BYTES) == before:
                output.write(text)
                return Written(output.path, note=note)


def write_best(
    ended: Sequence[Ended | EndedCounting],
    outputs: Sequence[Output],
    tasks: Sequence[Task],
    queue: Queue | None,
    ending: Ending,
    keep_better: bool,
    on: Pool | Board | None = None,
) -> list[Written]:
    """Write the best schedules of the tasks to their files. With `keep_better`, a schedule in a file that is faster is kept.

    The two are timed by turns, on a worker or a board if the search was. After an interruption nothing is timed, and the
    records in the queue say which is faster. After a search by emulated counts the one in the file is emulated.
    """
    from tensorc_dsl.faces.api.schedules import written as text_of
    from tensorc_dsl.faces.report.ended import EndedCounting

    out: list[Written] = []
    for one, output, task in zip(ended, outputs, tasks, strict=True):
        best = one.result.best
        found = Written()
        if best is not None:
            judge = None
            if keep_better and isinstance(one, EndedCounting):
                judge = partial(_judged_by_counts, task, one)
            elif keep_better and queue is not None:
                judge = partial(_judged, task, best, queue, ending, one.result.interrupted, on)
            try:
                how = ("--emulate",) if isinstance(one, EndedCounting) else ()
                text = one.header() + text_of(task, best, output.path, *how)
                found = replace_schedule(output, task, best, text, judge)
            except TschedError as e:
                found = Written(problem=e.diagnostics)
        out.append(found)
    return out


def _judged(
    task: Task, found: Trace, queue: Queue, ending: Ending, interrupted: bool, on: Pool | Board | None, held: Trace
) -> tuple[bool, str]:
    """Whether a file keeps the schedule that it has, where a search has found another; and the reason."""
    from tensorc_dsl.base.units import seconds
    from tensorc_dsl.faces.api.searching import compared_on, not_slower
    from tensorc_dsl.proof.equivalence.validate import Invalid
    from tensorc_dsl.tuning.records.trial import keys_of

    if task.keeps is not None and not task.holds(held):
        return False, f"its schedule is not proved to keep {task.keeps.words}"
    if not (interrupted or ending.told):
        with suppress(KeyboardInterrupt), interruptible(ending):
            say("comparing the best one with the one in its file", err=True)
            if isinstance(task.verify(held), Invalid):
                return False, "the schedule in it computes something else"
            old, new = task.compare((held, found)) if on is None else compared_on(on, task, (held, found))
            takes = ["fails" if o.seconds is None else f"takes {seconds(o.seconds)}" for o in (old, new)]
            kept = old.seconds is not None and (new.seconds is None or not_slower(old, new))
            tied = kept and new.seconds is not None and not_slower(new, old)
            told = ", which does not tell them apart" if tied else ""
            return kept, f"its schedule {takes[0]}, and the one found {takes[1]}, by turns{told}"
    order = _recorded(task, queue)
    old_place, new_place = (
        next((n for n, key in enumerate(order) if key in keys_of(trace.program)), None) for trace in (held, found)
    )
    if old_place is None:
        return True, "its schedule was not compared with the one found, since the search was interrupted"
    if new_place is not None and new_place < old_place:
        return False, "by the records, its schedule is slower than the one found"
    return True, "by the records, its schedule is faster than the one found"


def _judged_by_counts(task: Task, ended: EndedCounting, held: Trace) -> tuple[bool, str]:
    """Whether a schedule that a file has is faster by the model than the best one of a search; and the reason."""
    from tensorc_dsl.faces.api.kernel import counted
    from tensorc_dsl.tuning.measure.outcome import Quantity

    old, new = counted(task, held.program).outcome(task.target.cores), ended.result.best_seconds
    if old.seconds is None or new is None:
        return False, f"the schedule in it makes no valid kernel: {old.message}"
    takes = [Quantity.CYCLES.shown(cycles) for cycles in (old.seconds, new)]
    return old.seconds < new, f"its schedule takes {takes[0]}, and the one found {takes[1]}"


def _recorded(task: Task, queue: Queue) -> list[str]:
    """The keys of the recorded programs of the task, fastest first."""
    from tensorc_dsl.tuning.records.database import rank
    from tensorc_dsl.tuning.records.trial import Trial, program_key

    kept = [*queue.kept(program_key(task.program), task.target_key)]
    keys = {k.row: k.trial.program_key for k in kept if isinstance(k.trial, Trial)}
    return [keys[row] for row in rank(kept).rows]


def show_results(
    ended: Sequence[Ended | EndedCounting], files: Sequence[Written], priors: Sequence[Path | None], form: Form
) -> None:
    """Print the results on standard output, with the files of the best schedules and of the priors."""
    from tensorc_dsl.faces.report.ended import Ended

    facts = [
        (one.facts(file.path, prior) if isinstance(one, Ended) else one.facts(file.path))
        | {"kept": file.kept, "best_note": file.note or None}
        for one, file, prior in zip(ended, files, priors, strict=True)
    ]
    match form:
        case Form.TABLE:
            tables = [
                "\n".join(filter(None, (one.table(file.path), file.note)))
                for one, file in zip(ended, files, strict=True)
            ]
            show("\n\n".join(tables))
        case Form.OBJECT if len(facts) == 1:
            show_object(facts[0])
        case Form.OBJECT:
            show_object(facts)
        case Form.LINES:
            for fact in facts:
                show_object({"event": "result"} | fact)


def tell_what_is_lost(ended: Sequence[Ended | EndedCounting], files: Sequence[Written]) -> None:
    """Report schedules and records that could not be written, and print where else they are."""
    for one, file in zip(ended, files, strict=True):
        result = one.result
        if file.problem:
            show_diagnostics(*file.problem)
        if file.problem or (file.kept and result.unkept is not None):
            if result.unkept is None:
                say("the schedule is among the records: `tensorc-dsl run` uses it", err=True)
            elif result.best is not None:
                say("the schedule, which may be in no file:", err=True)
                show(result.best.text, err=True)
    # One queue keeps the records of all searches.
    for unkept in [one.result.unkept for one in ended if one.result.unkept is not None][-1:]:
        show_diagnostics(*unkept.why)
        say(str(unkept), err=True)


def tell_what_is_wrong(ended: Sequence[Ended | EndedCounting], tasks: Sequence[Task]) -> None:
    """Raises WrongSchedule, a bug of tensorc-dsl, if a proof refutes a schedule, which is written to a file."""
    from tensorc_dsl.faces.api.searching import WrongSchedule

    for one, task in zip(ended, tasks, strict=True):
        for trace, report in one.result.wrong[:1]:
            _write_wrong(task, trace, "verify")
            raise WrongSchedule(trace, report.diagnostic)


def tell_what_is_miscomputed(ended: Sequence[Ended | EndedCounting], tasks: Sequence[Task]) -> bool:
    """Whether an emulation found kernels that are wrong, which are reported; the first of a task is written to a file."""
    from tensorc_dsl.faces.report.ended import EndedCounting

    some = False
    for one, task in zip(ended, tasks, strict=True):
        wrong = one.wrong if isinstance(one, EndedCounting) else []
        for n in wrong:
            fault = one.result.outcomes[n].message
            say(f"{one.task}: trial {n + 1} makes a kernel that is wrong: {fault}", err=True)
        for n in wrong[:1]:
            _write_wrong(task, one.result.traces[n], "replay", "--emulate")
        some |= bool(wrong)
    return some


def _write_wrong(task: Task, trace: Trace, verb: str, *more: str) -> None:
    """Write a schedule that is wrong to a file of its own, and say which command shows that."""
    from tensorc_dsl.base.outputs import Output

    wrong = Path(f"{task.name}.wrong.tsched")
    try:
        Output(wrong).write(trace.text)
        say(f"{wrong} holds a schedule that is wrong: `{task.command(verb, str(wrong), *more)}`", err=True)
    except TschedError as e:
        show_diagnostics(*e.diagnostics)


# `tune --write-prior`: the file with what was learnt of its tasks.


@frozen
class Prior:
    """Where the tasks of a file are written with their priors."""

    output: Output
    tasks: TaskFile

    @property
    def path(self) -> Path:
        return self.output.path

    @staticmethod
    def at(path: str, file: str, tasks: TaskFile, replayed: str | None) -> Prior:
        """At the path, or in this folder. Raises UsageError, and TschedError if the file would fail there."""
        from tensorc_dsl.base.outputs import Output
        from tensorc_dsl.base.source import Source
        from tensorc_dsl.check.scope import load_source
        from tensorc_dsl.faces.packages import Resolver

        if replayed is not None:
            raise click.UsageError(
                "--write-prior is about the space of the task, and --replay about a schedule: give one of them"
            )
        to = Path(path or f"{'tasks' if file == '-' else Path(file).stem}_prior{SUFFIX}")
        if to.exists() and os.path.exists(file) and to.samefile(file):
            raise click.UsageError("--write-prior would replace FILE: give another path")
        output = Output(to, typed=bool(path))
        output.check()
        # What the text uses may be beside FILE, and not there.
        text = Source(str(to), tasks.checked.source.text)
        load_source(text, Resolver(to, settings(click.get_current_context()).include))
        return Prior(output, tasks)

    def write(self, searched: Sequence[Task], records: str | None) -> frozenset[str]:
        """The names of the tasks whose priors are in the file; standard error reports missing ones."""
        from tensorc_dsl.faces.api.recorded import Lesson, plain, with_priors
        from tensorc_dsl.faces.api.searching import recorded_trials, studied
        from tensorc_dsl.tuning.insight import posterior
        from tensorc_dsl.tuning.records.database import Database

        lessons: list[Lesson] = []
        written: frozenset[str] = frozenset()
        problems: list[TschedError] = []
        try:
            with Database.required(Path(records) if records else None) as database:
                for task in searched:
                    try:
                        trials = recorded_trials(task, database, show_diagnostics)
                        study = studied(plain(task).model, task.name, trials)
                        lessons.append(Lesson(task, study.valid, posterior(study)))
                    except TschedError as e:
                        problems.append(e)
            if lessons:
                self.output.write(with_priors(self.tasks.checked, lessons))
                written = frozenset(lesson.task.name for lesson in lessons)
        except TschedError as e:
            problems.append(e)
        for e in problems:
            show_diagnostics(*e.diagnostics)
        return written
