"""`sample`: draw schedules."""

from __future__ import annotations

import click

from tensorc_dsl.faces.cli.options import (
    LeftOut,
    common_options,
    file_argument,
    handled,
    handler_options,
    seed_option,
    target_options,
    task_argument,
    task_of_options,
)
from tensorc_dsl.faces.report.terminal import write


@click.command()
@file_argument
@task_argument
@seed_option
@click.option(
    "-n", "count", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="How many to draw."
)
@handler_options
@target_options
@common_options
def sample(
    file: str, task: str | None, seed: int, count: int, replayed: str | None, conditions: tuple[tuple[str, str], ...],
    hidden: tuple[str, ...], target: str | None, mcpu: str | None, threads: int | None,
) -> None:  # fmt: skip
    """Print schedules drawn from a task's space, every decision pinned.

    What is printed can be edited and given to `replay`. The k-th schedule depends on the seed and k only. A rule of the space
    that was refused is left out of it, and told on standard error, once for each reason.
    """
    found = handled(task_of_options(file, task, threads, target, mcpu), replayed, conditions, hidden)
    left_out = LeftOut()
    for number in range(count):
        trace = found.sample(seed, number)
        write(("\n" if number else "") + trace.titled)
        left_out.tell(trace)
