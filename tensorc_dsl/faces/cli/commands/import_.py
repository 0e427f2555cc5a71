"""`import`: write a model of another system as a `.tsched` file."""

from __future__ import annotations

import shlex

import click

from tensorc_dsl.faces.cli.options import common_options, set_option
from tensorc_dsl.faces.report.terminal import say


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`x=1,3,224,224`; a single value has no sizes, `x=`."""
    name, sign, sizes = text.rpartition("=")
    if word := next((n.strip() for n in sizes.split(",") if sign and n.strip().isidentifier()), None):
        repair = f"import the file for each that occurs, with its number in the place of `{word}`, and `--output`"
        raise click.BadParameter(f"`{word}` in `{text}` is no number, and a model has no open sizes: {repair}")
    try:
        numbers = tuple(int(n) for n in sizes.split(",") if sizes)
    except ValueError:
        numbers = (-1,)
    if not sign or not name or min(numbers, default=0) < 0:
        raise click.BadParameter(f"`{text}` is no name with sizes, as `x=1,3,224,224`")
    return name, numbers


@click.command("import")
@click.argument("file", type=click.Path())
@click.option(
    "--shape",
    "shapes",
    metavar="NAME=SIZES",
    multiple=True,
    help="Fix the sizes of an input: `x=1,3,224,224`; may be repeated.",
)
@set_option
@click.option("--output", type=click.Path(), metavar="PATH", help="The file to write, in place of the usual one.")
@click.option("--force", is_flag=True, help="Replace files that were changed since an import wrote them.")
@common_options
def import_(
    file: str, shapes: tuple[str, ...], values: tuple[tuple[str, int | float], ...], output: str | None, force: bool
) -> None:
    """Write an ONNX file as a `.tsched` file: a model, with a compute for each distinct operator in it.

    It is written beside the file, and its weights beside it, as a `.safetensors` file. All sizes are numbers: those that the
    file leaves open are given with --shape. Nothing is written if an operator is not supported; the error has all of them.

    Files of an earlier import are replaced, unless they were changed since: then nothing is written without --force.

    Needs the package `onnx`: `pip install 'tensorc-dsl[onnx]'`.
    """
    from tensorc_dsl.faces.api.models import import_onnx

    made = import_onnx(file, output, shapes=dict(map(_shape, shapes)), values=dict(values), force=force)
    say(f"{made}: written; `tensorc-dsl run {shlex.quote(str(made))}` runs it")
