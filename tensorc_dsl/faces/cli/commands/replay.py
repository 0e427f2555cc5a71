"""`replay`: run and time a frozen schedule on this machine."""

from __future__ import annotations

import click

from tensorc_dsl.faces.cli.measured import emulate_and_show, measure_and_show, run_and_show
from tensorc_dsl.faces.cli.options import (
    chosen,
    chosen_model,
    common_options,
    emulate_option,
    file_argument,
    load,
    target_options,
    task_and_trace,
)


@click.command()
@file_argument
@click.argument("words", metavar="[TASK] TRACE", nargs=-1)
@target_options
@emulate_option
@common_options
def replay(
    file: str, words: tuple[str, ...], target: str | None, mcpu: str | None, threads: int | None, emulate: bool
) -> None:
    """Run the schedule in the file TRACE on random inputs, check its result against the reference, and time it.

    The schedule may have been edited. A draw whose pin was removed is drawn with seed 0. A model runs with the schedules in
    TRACE, as `tune` writes them, and is timed: the file's only one, or the one that TASK names.
    With --emulate a schedule for a GPU is checked without one, and not timed.
    """
    tasks = load(file, threads, target, mcpu)
    if words and (name := chosen_model(tasks.checked, words[0] if len(words) == 2 else None)) is not None:
        if emulate or target is not None or mcpu is not None:
            raise click.UsageError("a model runs on this machine: leave out `--emulate`, `--target` and `--mcpu`")
        from tensorc_dsl.faces.api.models import model_of

        model = model_of(tasks.checked, name, threads)
        model.use(words[-1])
        run_and_show(model, model.random_inputs())
        return
    task, trace = task_and_trace(tasks, file, words)
    if trace is None:
        raise click.UsageError("Missing argument 'TRACE'.")
    found = chosen(tasks, task, mcpu)
    (emulate_and_show if emulate else measure_and_show)(found, found.frozen(trace))
