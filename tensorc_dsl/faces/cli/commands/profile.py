"""`profile`: run a model and print how long each of its groups takes."""

from __future__ import annotations

from pathlib import Path

import click

from tensorc_dsl.base.outputs import Output
from tensorc_dsl.faces.cli.options import (
    common_options,
    file_argument,
    load,
    records_option,
    same_bits_option,
    threads_option,
)
from tensorc_dsl.faces.report.terminal import say, show, show_object


@click.command()
@file_argument
@click.argument("model", metavar="[MODEL]", required=False)
@threads_option
@records_option
@same_bits_option
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(),
    metavar="PATH",
    help="Write one run, call by call, in the format of Chrome's traces, which https://ui.perfetto.dev shows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@common_options
def profile(
    file: str,
    model: str | None,
    threads: int | None,
    records: str | None,
    same_bits: bool,
    trace_file: str | None,
    as_json: bool,
) -> None:
    """Run a model on random inputs, and print how long each of its groups takes: calls of one task are a group.

    Times are medians of whole runs, one after the other. Operations are counted as in the source, and bytes are those of all
    inputs and outputs. The roof of a group is the least time of its operations at the peak of this machine, or of its bytes
    at its bandwidth, whichever is longer; both are measured. Kernels have the fastest recorded schedules, as in `run`.
    """
    from tensorc_dsl.faces.api.model_timing import profile_model
    from tensorc_dsl.faces.api.models import model_of
    from tensorc_dsl.faces.cli.models import profile_facts, profile_table

    output = None if trace_file is None else Output(Path(trace_file), typed=True)
    if output is not None:
        output.check()
    checked = load(file, threads).checked
    found = model_of(checked, model, threads, None if records is None else Path(records), same_bits=same_bits)
    result = profile_model(found)
    if output is not None:
        import json

        output.write(json.dumps(result.trace()) + "\n")
    if as_json:
        show_object(profile_facts(result))
    else:
        show(profile_table(found, result))
        if output is not None:
            say(f"trace: {output.path}", err=True)
