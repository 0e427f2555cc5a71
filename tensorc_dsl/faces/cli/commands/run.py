"""`run`: run and time the best recorded schedule of a task on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorc_dsl.faces.cli.measured import best_known, emulate_and_show, measure_and_show, measured, run_and_show
from tensorc_dsl.faces.cli.options import (
    chosen,
    chosen_model,
    common_options,
    emulate_option,
    file_argument,
    load,
    only,
    records_option,
    same_bits_option,
    target_options,
    task_argument,
)
from tensorc_dsl.faces.report.terminal import show_object

if TYPE_CHECKING:
    from tensorc_dsl.faces.api import LoadedModel


@click.command()
@file_argument
@task_argument
@target_options
@records_option
@same_bits_option
@emulate_option
@click.option(
    "--input",
    "given",
    metavar="[NAME=]FILE",
    multiple=True,
    help="An input of a model, `x=image.npy`, or several, `inputs.npz`; those that are not given are random.",
)
@click.option("--results", metavar="FILE", help="Write the results of a model, by their names, as a `.npz` file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@common_options
def run(
    file: str,
    task: str | None,
    target: str | None,
    mcpu: str | None,
    threads: int | None,
    records: str | None,
    same_bits: bool,
    emulate: bool,
    given: tuple[str, ...],
    results: str | None,
    as_json: bool,
) -> None:
    """Run the best recorded schedule of a task on random inputs, check its result against the reference, and time it.

    A model runs on inputs from files of NumPy or on random ones, and is timed: the file's only one, or the one that TASK
    names. Its results are not checked.

    The records are those of this machine, and are only read. A task without records has the schedule that records of other
    tasks predict to be the fastest, and with few of these a schedule drawn with seed 0; standard error says which. `replay`
    does the same for a schedule in a file.

    With --emulate a kernel for a GPU runs on the CPU, in three orders of threads. Its result is checked, and threads that
    race or reach different barriers and accesses that are out of bounds are reported. Nothing is timed.
    """
    from tensorc_dsl.faces.api.models import model_of

    if emulate and as_json:
        raise click.UsageError("`--json` prints a time, and `--emulate` takes none")
    tasks = load(file, threads, target, mcpu)
    model = chosen_model(tasks.checked, task)
    if model is not None:
        if emulate or target is not None or mcpu is not None:
            raise click.UsageError("a model runs on this machine: leave out `--emulate`, `--target` and `--mcpu`")
        recorded = Path(records) if records else None
        made = model_of(tasks.checked, model, threads, recorded, same_bits=same_bits)
        _run_model(made, given, results, as_json)
        return
    if given or results is not None:
        raise click.UsageError("`--input` and `--results` are for models")
    found = chosen(tasks, task or only(tasks, file), mcpu)
    found = found.keeping(bits=True) if same_bits else found
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


def _run_model(model: LoadedModel, given: tuple[str, ...], results: str | None, as_json: bool) -> None:
    """Run a model, and print the types of its results and the time of a call."""
    from io import BytesIO

    import numpy as np

    from tensorc_dsl.base.outputs import Output

    inputs = _inputs(model, given)
    to = None if results is None else Output(Path(results), typed=True)
    if to is not None:
        to.check()
    made = run_and_show(model, inputs, as_json)
    if to is not None:
        content = BytesIO()
        np.savez(content, **made)
        to.write(content.getvalue())


def _inputs(model: LoadedModel, given: tuple[str, ...]) -> dict[str, Any]:
    """The inputs of a model: those in files, and random ones."""
    from zipfile import BadZipFile

    import numpy as np

    inputs: dict[str, Any] = model.random_inputs()
    for text in given:
        name, sign, path = text.rpartition("=")
        try:
            with open(path, "rb") as file:
                content: Any = np.load(file, allow_pickle=False)
                found = {name: content} if sign else dict(content)
        except (OSError, EOFError, ValueError, TypeError, BadZipFile) as e:
            wanted = "is no array of NumPy, `.npy`" if sign else "has no arrays by name, `.npz`"
            reason = e.strerror if isinstance(e, OSError) and e.strerror else f"`{path}` {wanted}"
            raise click.BadParameter(f"`{text}`: {reason}", param_hint="'--input'") from e
        if wrong := [n for n in found if n not in model.inputs]:
            listed = ", ".join(model.inputs) or "none"
            raise click.BadParameter(
                f"`{wrong[0]}` is no input of the model; they are {listed}", param_hint="'--input'"
            )
        inputs |= found
    return inputs
