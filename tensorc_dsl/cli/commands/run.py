"""`run`: run and time the best recorded schedule of a task on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.loading import load_task
from tensorc_dsl.cli.measured import measure_and_show
from tensorc_dsl.cli.options import common_options, file_argument, records_option, task_argument, threads_option
from tensorc_dsl.report.terminal import say, show_diagnostics

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.trace.trace import Trace


@click.command()
@file_argument
@task_argument
@threads_option
@records_option
@common_options
def run(file: str, task: str | None, threads: int | None, records: str | None) -> None:
    """Run the best recorded schedule of a task on random inputs, check its result against the reference, and time it.

    The records are those of this machine, and are only read; where there is none for this task, a schedule is drawn with
    seed 0. `replay` does the same for a schedule in a file.
    """
    found = load_task(file, task, threads)
    measure_and_show(found, _best(found, records))


def _best(task: Task, records: str | None) -> Trace:
    recorded = task.recorded(Path(records) if records else None, on_warning=show_diagnostics)
    if recorded is None:
        say("no recorded schedule for this task on this machine: one is drawn with seed 0", err=True)
        return task.sample(0)
    return recorded
