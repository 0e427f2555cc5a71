"""`run`: run and time the best recorded schedule of a task on this machine."""

from __future__ import annotations

import click

from tensorc_dsl.faces.cli.measured import best_known, emulate_and_show, measure_and_show, measured
from tensorc_dsl.faces.cli.options import (
    common_options,
    emulate_option,
    file_argument,
    load_task,
    records_option,
    target_options,
    task_argument,
)
from tensorc_dsl.faces.report.terminal import show_object


@click.command()
@file_argument
@task_argument
@target_options
@records_option
@emulate_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@common_options
def run(
    file: str,
    task: str | None,
    target: str | None,
    mcpu: str | None,
    threads: int | None,
    records: str | None,
    emulate: bool,
    as_json: bool,
) -> None:
    """Run the best recorded schedule of a task on random inputs, check its result against the reference, and time it.

    The records are those of this machine, and are only read. A task without records has the schedule that records of other
    tasks predict to be the fastest, and with few of these a schedule drawn with seed 0; standard error says which. `replay`
    does the same for a schedule in a file.

    With --emulate a kernel for a GPU runs on the CPU, in three orders of threads. Its result is checked, and threads that
    race or reach different barriers and accesses that are out of bounds are reported. Nothing is timed.
    """
    if emulate and as_json:
        raise click.UsageError("`--json` prints a time, and `--emulate` takes none")
    found = load_task(file, task, threads, target, mcpu)
    known = best_known(found, file, records)
    if emulate:
        emulate_and_show(found, known.trace)
        return
    if not as_json:
        measure_and_show(found, known.trace)
        return
    from tensorc_dsl.faces.api.kernel import facts

    seconds, error, compared = measured(found, known.trace)
    origin = facts(known.origin) | {"trace": known.trace.text}
    show_object({"task": found.name, "seconds": seconds, "max_error": error, "compared": compared, "schedule": origin})
