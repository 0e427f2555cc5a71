"""`lsp`: serve an editor."""

from __future__ import annotations

from pathlib import Path

import click

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.faces.cli.options import common_options, records_option, settings


@problem(
    "E0926",
    "the language server needs the extra `lsp` of the package, which is not installed: there is no `{missing}`",
    help="install `tensorc-dsl[lsp]`",
)
def NO_SERVER(*, missing: str) -> None: ...


@click.command()
@click.option("--stdio", is_flag=True, help="Speak over standard input and output, which it always does.")
@records_option
@common_options
def lsp(stdio: bool, records: str | None) -> None:
    """Serve an editor: the language server, over standard input and output. An editor starts it.

    It reports errors while a file is written, shows what a name is and where it is defined, and completes names.
    It reads the records of searches and changes nothing.
    """
    del stdio  # editors pass it to all servers
    try:
        from tensorc_dsl.faces.lsp.server import serve
    except ModuleNotFoundError as e:
        if e.name is None or e.name.partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise TschedError(NO_SERVER(None, missing=e.name)) from e
    serve(Path(records) if records else None, settings(click.get_current_context()).include)
