"""`tune --write-prior`: the file with what was learnt of its tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.loading import SUFFIX
from tensorc_dsl.cli.options import settings
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.report.terminal import show_diagnostics

if TYPE_CHECKING:
    from tensorc_dsl.api import Task, TaskFile
    from tensorc_dsl.outputs import Output


@dataclass(frozen=True, slots=True)
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
        from tensorc_dsl.check.scope import load_source
        from tensorc_dsl.outputs import Output
        from tensorc_dsl.packages.resolve import Resolver
        from tensorc_dsl.source import Source

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
        from tensorc_dsl.api.insights import recorded_trials, studied
        from tensorc_dsl.api.priors import Lesson, plain, with_priors
        from tensorc_dsl.tuning.insight.posterior import posterior
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
