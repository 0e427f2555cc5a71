"""The commands that an editor runs: a search and a run of a task as the command line does them, and views of programs."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.lsp.documents import Document, path_of
from tensorc_dsl.faces.lsp.features import best_records, program_after
from tensorc_dsl.faces.lsp.text import normal
from tensorc_dsl.interp.space import read_decision
from tensorc_dsl.syntax import tree as t

if TYPE_CHECKING:
    from tensorc_dsl.faces.lsp.server import Server

# Nothing in the folder of the document is imported.
_PROGRAM = (sys.executable, "-P", "-c", "from tensorc_dsl.faces.cli.main import main; main()")

LAST_LINES = 12
"""Lines of a command's output that are shown at its end."""


def add_commands(server: Server) -> None:
    """Have the server run the commands."""

    @server.command(program_after.COMMAND)
    def on_program_after(
        uri: str, position: lsp.Position, task: str | None = None, decisions: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        known = server.analysis(uri)
        if known is None:
            return None
        try:
            values = {name: read_decision(value) for name, value in (decisions or {}).items()}
        except TschedError as e:
            return {"problem": e.diagnostics[0].message}
        found = program_after.program_after(known, position, server.records, task, values)
        return None if found is None else found.data()

    @server.command(best_records.SHOW)
    def on_show(uri: str, task: str) -> dict[str, Any] | None:
        known = server.analysis(uri)
        named = [i for i in known.items if isinstance(i, t.TaskDef) and i.name == task] if known is not None else []
        if known is None or not named:
            return None
        at = known.text.position(known.start(named[0].name.span))
        found = program_after.program_after(known, at, server.records, task)
        return None if found is None else found.data()

    @server.command(best_records.TUNE)
    async def on_tune(uri: str, task: str) -> str:
        return await _run(server, "tune", uri, task)

    @server.command(best_records.RUN)
    async def on_run(uri: str, task: str) -> str:
        return await _run(server, "run", uri, task)


async def _run(server: Server, command: str, uri: str, task: str) -> str:
    """The end of the output of a command for a task of the saved file; the editor shows it, too."""
    path = path_of(uri)
    document = server.documents.open.get(uri)
    if not path.is_file():
        return _say(server, f"save the file first: `{command}` reads it", lsp.MessageType.Warning)
    if document is not None and not is_saved(document, path):
        _say(server, f"`{command}` reads the file as it was saved last", lsp.MessageType.Warning)
    records = () if server.records.path is None else ("--records", str(server.records.path.absolute()))
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM,
        command,
        str(path.absolute()),
        task,
        *records,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=path.absolute().parent,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        out, _ = await process.communicate()
    except asyncio.CancelledError:
        # The editor has cancelled the request: a search keeps what it has found.
        process.terminate()
        await process.wait()
        raise
    said = "\n".join(out.decode(errors="replace").splitlines()[-LAST_LINES:])
    _say(server, said, lsp.MessageType.Info if process.returncode == 0 else lsp.MessageType.Error)
    refresh(server)
    return said


def is_saved(document: Document, path: Path) -> bool:
    """Whether the file has the text of the document; editors keep a mark of the byte order at its start to themselves."""
    saved = normal(path.read_bytes().decode(errors="replace").removeprefix("\ufeff"))
    return document.text in (saved, f" {saved}")


def refresh(server: Server) -> None:
    """Have the editor ask again what records say."""
    workspace = server.client_capabilities.workspace
    if workspace is not None and workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
        server.workspace_inlay_hint_refresh(None)
    if workspace is not None and workspace.code_lens is not None and workspace.code_lens.refresh_support:
        server.workspace_code_lens_refresh(None)


def _say(server: Server, text: str, kind: lsp.MessageType) -> str:
    server.window_show_message(lsp.ShowMessageParams(kind, text))
    return text
