"""`run`: run and time the best recorded schedule of a task on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensorc_dsl.faces.cli.measured import best_known, emulate_and_show, measure_and_show, measured
from tensorc_dsl.faces.cli.options import (
    chosen,
    common_options,
    emulate_option,
    file_argument,
    load,
    only,
    records_option,
    target_options,
    task_argument,
)
from tensorc_dsl.faces.report.terminal import say, show_object

if TYPE_CHECKING:
    from tensorc_dsl.check.scope import CheckedFile

_MOST_SECONDS = 2.0
"""How long a model is timed; a call that takes longer is timed once."""


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

    A model runs on random inputs, and is timed: the file's only one, or the one that TASK names. Its results are not checked.

    The records are those of this machine, and are only read. A task without records has the schedule that records of other
    tasks predict to be the fastest, and with few of these a schedule drawn with seed 0; standard error says which. `replay`
    does the same for a schedule in a file.

    With --emulate a kernel for a GPU runs on the CPU, in three orders of threads. Its result is checked, and threads that
    race or reach different barriers and accesses that are out of bounds are reported. Nothing is timed.
    """
    if emulate and as_json:
        raise click.UsageError("`--json` prints a time, and `--emulate` takes none")
    tasks = load(file, threads, target, mcpu)
    model = _model(tasks.checked, task)
    if model is not None:
        if emulate or target is not None or mcpu is not None or records is not None:
            raise click.UsageError("a model runs on this machine, and takes --threads and --json")
        _run_model(tasks.checked, model, threads, as_json)
        return
    found = chosen(tasks, task or only(tasks, file), mcpu)
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


def _model(checked: CheckedFile, name: str | None) -> str | None:
    """The model that is meant: the one of that name, or without a name the only item that runs; None if it is a task."""
    if name is not None:
        return name if name in checked.models and name not in checked.tasks else None
    return str(next(iter(checked.models))) if len(checked.models) == 1 and not checked.tasks else None


def _run_model(checked: CheckedFile, name: str, threads: int | None, as_json: bool) -> None:
    """Run a model on random inputs, and print the types of its results and the time of a call."""
    import time

    from tensorc_dsl.base import units
    from tensorc_dsl.faces.api.models import model_of

    model = model_of(checked, name, threads)
    model.prepare()
    inputs = model.random_inputs()
    results = model.outputs_of(**inputs)  # the first call also takes memory
    times: list[float] = []
    end = time.perf_counter() + _MOST_SECONDS
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        results = model.outputs_of(**inputs)
        times.append(time.perf_counter() - begin)
    seconds = sorted(times)[len(times) // 2]
    shapes = {n: f"{r.dtype.name}{list(r.shape)}" for n, r in results.items()}
    if as_json:
        show_object({"model": name, "seconds": seconds, "calls": len(times), "outputs": shapes})
        return
    for output, shape in shapes.items():
        say(f"{output}: {shape}")
    say(f"{name}: {units.seconds(seconds)} a call, the median of {len(times)}")
