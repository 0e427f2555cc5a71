"""`fmt`: format files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.cli.failures import ExitCode
from tensorc_dsl.faces.cli.options import common_options, files_argument
from tensorc_dsl.faces.report.terminal import say, show_diagnostics, write

if TYPE_CHECKING:
    from tensorc_dsl.base.outputs import Output


@problem(
    "E0903",
    "cannot write `{name}`: it is no file that could hold it",
    help="`tensorc-dsl fmt -` formats what a pipe brings",
)
def IN_PLACE(*, name: str) -> None: ...


@click.command()
@files_argument
@click.option("--check", is_flag=True, help="Write nothing; list the files that would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@common_options
@click.pass_context
def fmt(ctx: click.Context, files: tuple[str, ...], check: bool, diff: bool) -> None:
    """Format files, and all that lie in a folder, in place; `-` formats standard input to standard output.

    Words and comments stay as they are; a file that does not parse is left alone. With --check or --diff the exit status is
    1 when a file would change.
    """
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.faces.report.files import sources_below

    found: list[Diagnostic] = []
    changes = 0
    for name in files:
        try:
            is_folder = Path(name).is_dir()
            for file in sources_below(Path(name)) if is_folder else (Path(name),):
                # A link in a folder is followed as far as the folder reaches: nobody named what is outside.
                inside = not is_folder or file.resolve().is_relative_to(Path(name).resolve())
                try:
                    changes += _format(Output(file, typed=inside), check, diff)
                except TschedError as e:
                    found += e.diagnostics
        except TschedError as e:
            found += e.diagnostics
    if found:
        show_diagnostics(*found)
    if found or (changes and (check or diff)):
        ctx.exit(ExitCode.FINDINGS)


def _format(file: Output, check: bool, diff: bool) -> bool:
    """Whether the file was, or would be, changed. Raises TschedError."""
    from tensorc_dsl.faces.report.files import STDIN, read_text, source_of
    from tensorc_dsl.syntax.fmt import format_text

    name = str(file.path)
    data = read_text(name)
    source = source_of(data, name)
    after = format_text(source)
    # The content is compared byte for byte, since line ends are layout too.
    before = source.text if name == STDIN else data.decode()
    if diff:
        write(_difference(source.name, before, after))
    elif name == STDIN and not check:
        write(after)
    elif before != after and check:
        say(f"{source.name}: not formatted")
    elif before != after:
        if not Path(name).is_file():
            raise TschedError(IN_PLACE(None, name=name))
        file.write(after)
        say(f"{name}: formatted")
    return before != after


def _difference(name: str, before: str, after: str) -> str:
    from difflib import unified_diff
    from io import StringIO

    name = visible_line(name)
    lines = unified_diff([*StringIO(before)], [*StringIO(after)], name, f"{name} (formatted)")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
