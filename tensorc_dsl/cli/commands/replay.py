"""`replay`: what a frozen schedule is worth on this machine."""

from __future__ import annotations

import click

from tensorc_dsl.cli.loading import load
from tensorc_dsl.cli.measured import measure_and_show
from tensorc_dsl.cli.options import common_options, file_argument, task_argument, threads_option


@click.command()
@file_argument
@task_argument
@click.argument("trace", metavar="TRACE")
@threads_option
@common_options
def replay(file: str, task: str, trace: str, threads: int | None) -> None:
    """Run the schedule in the file TRACE on random inputs, check its result against the reference, and time it.

    The schedule may have been edited. A draw whose pin was removed is drawn with seed 0.
    """
    found = load(file, threads=threads)[task]
    measure_and_show(found, found.frozen(trace))
