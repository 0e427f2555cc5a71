"""`serve`: the playground, a page in the browser."""

from __future__ import annotations

from importlib.util import find_spec

import click

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.faces.cli.options import common_options, records_option, settings
from tensorc_dsl.faces.report.terminal import say


@problem(
    "E0926",
    "the playground needs the extra `lsp` of the package, which is not installed: there is no `{missing}`",
    help="install `tensorc-dsl[lsp]`",
)
def NO_PLAYGROUND(*, missing: str) -> None: ...


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port; by default a free one.")
@records_option
@common_options
def serve(file: str | None, port: int, records: str | None) -> None:
    """Serve the playground, a page for the browser of this machine; Ctrl-C ends it.

    The page has an editor with what is wrong in its text and what can stand there, the program after each step of a
    schedule, a slider for each draw with its value in the records, and the assembly. It begins with the text of FILE, or
    with an example, and writes no file.

    The page is served to this machine only, at an address that nobody can guess.
    """
    # The processes of the playground import them, and could not report their absence.
    for missing in ("pygls", "lsprotocol"):
        if find_spec(missing) is None:
            raise TschedError(NO_PLAYGROUND(None, missing=missing))
    from tensorc_dsl.faces.playground.page import first
    from tensorc_dsl.faces.playground.server import Playground
    from tensorc_dsl.faces.report.files import read_source

    source = first() if file is None else read_source(file)
    include = settings(click.get_current_context()).include
    with Playground(source, port=port, include=include, records=records) as playground:
        say(f"the playground: {playground.address}")
        playground.serve_forever()
