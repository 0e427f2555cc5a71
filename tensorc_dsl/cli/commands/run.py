"""`run`: run a task on random inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.loading import load
from tensorc_dsl.cli.measured import measure_and_show
from tensorc_dsl.cli.options import common_options, file_argument, records_option, task_argument, threads_option

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.trace.trace import Trace


@click.command()
@file_argument
@task_argument
@click.option("--trace", metavar="TRACE", help="The schedule; by default the best recorded one.")
@threads_option
@records_option
@common_options
def run(file: str, task: str, trace: str | None, threads: int | None, records: str | None) -> None:
    """Run a task on random inputs, check its result against the reference, and time it.

    Without --trace the best schedule that was recorded for this task on this machine is used, or, where there is none, one
    drawn with seed 0.
    """
    found = load(file, threads=threads)[task]
    measure_and_show(found, found.frozen(trace) if trace is not None else _best(found, records))


def _best(task: Task, records: str | None) -> Trace:
    recorded = task.recorded(Path(records) if records else None)
    if recorded is None:
        click.echo("no recorded schedule for this task on this machine: one is drawn with seed 0", err=True)
        return task.sample(0)
    return recorded
