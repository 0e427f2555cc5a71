"""`compare`: run a model beside the ONNX file that it was imported from, and print the differences and both times."""

from __future__ import annotations

from pathlib import Path

import click

from tensorc_dsl.faces.cli.failures import ExitCode
from tensorc_dsl.faces.cli.options import (
    common_options,
    file_argument,
    load,
    records_option,
    same_bits_option,
    set_option,
    share,
    threads_option,
)
from tensorc_dsl.faces.report.terminal import say, show, show_object


@click.command()
@file_argument
@click.argument("onnx", metavar="ONNX", type=click.Path())
@click.option("--model", metavar="NAME", help="The model, where the file has several.")
@click.option(
    "--with",
    "runtime",
    type=click.Choice(["onnxruntime", "openvino"]),
    default="onnxruntime",
    show_default=True,
    help="The package that runs the ONNX file.",
)
@set_option
@threads_option
@records_option
@same_bits_option
@click.option(
    "--within",
    metavar="SHARE",
    callback=share,
    help="Exit with status 1 if an output is further off, as a share of its largest value: `0.1%`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@common_options
@click.pass_context
def compare(
    ctx: click.Context,
    file: str,
    onnx: str,
    model: str | None,
    runtime: str,
    values: tuple[tuple[str, int | float], ...],
    threads: int | None,
    records: str | None,
    same_bits: bool,
    within: float | None,
    as_json: bool,
) -> None:
    """Run a model beside the ONNX file that it was imported from, with equal random inputs and as many threads.

    The largest difference of each output is printed, with its place, and as a share of the largest value. Times are those of
    whole calls, by turns.

    Needs the package that runs the file: `pip install 'tensorc-dsl[compare]'` brings ONNX Runtime.
    """
    from tensorc_dsl.faces.api.model_timing import compare_model
    from tensorc_dsl.faces.api.models import model_of
    from tensorc_dsl.faces.cli.models import comparison_facts, comparison_table

    checked = load(file, threads).checked
    loaded = model_of(checked, model, threads, None if records is None else Path(records), same_bits=same_bits)
    found = compare_model(loaded, onnx, runtime=runtime, values=dict(values))
    if as_json:
        show_object(comparison_facts(found))
    else:
        show(comparison_table(found))
    if within is not None and not found.worst <= within:
        say(f"an output is further off than {within:g} of its largest value", err=True)
        ctx.exit(ExitCode.FINDINGS)
