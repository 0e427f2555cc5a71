"""An editor for tests: it starts `tensorc-dsl lsp` and speaks to it over standard input and output, as editors do."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which a test gives up: a guard, and no measure."""

COMMAND = ("-c", "from tensorc_dsl.faces.cli.main import main; main()", "lsp")


class Editor:
    """A client with its server. `ask` waits for an answer; positions are those of a `|` in the text that is opened."""

    def __init__(self, root: Path, *options: str, encodings: tuple[str, ...] = ("utf-16",)) -> None:
        self.root = root
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.client = LanguageClient("tests", "1")
        self.told: dict[str, list[lsp.PublishDiagnosticsParams]] = {}
        self.messages: list[str] = []
        self.refreshed = 0
        self.registered: list[str] = []
        self._changed = threading.Condition(threading.RLock())
        self._listen()
        self.capabilities = self.wait(self._start(encodings)).capabilities

    def _listen(self) -> None:
        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(params: lsp.PublishDiagnosticsParams) -> None:
            with self._changed:
                self.told.setdefault(params.uri, []).append(params)
                self._changed.notify_all()

        @self.client.feature(lsp.CLIENT_REGISTER_CAPABILITY)
        def registered(params: lsp.RegistrationParams) -> None:
            self.registered += [r.method for r in params.registrations]

        @self.client.feature(lsp.WORKSPACE_INLAY_HINT_REFRESH)
        def refreshed(_: None) -> None:
            with self._changed:
                self.refreshed += 1
                self._changed.notify_all()

        @self.client.feature(lsp.WINDOW_LOG_MESSAGE)
        def said(params: lsp.LogMessageParams) -> None:
            self.messages.append(params.message)

    async def _start(self, encodings: tuple[str, ...]) -> lsp.InitializeResult:
        await self.client.start_io(
            sys.executable,
            *COMMAND,
            "--stdio",
            *self._options,
            cwd=self.root,
            env={**os.environ, "XDG_DATA_HOME": str(self.root)},
        )
        general = lsp.GeneralClientCapabilities(position_encodings=[lsp.PositionEncodingKind(e) for e in encodings])
        document = lsp.TextDocumentClientCapabilities(
            completion=lsp.CompletionClientCapabilities(
                completion_item=lsp.ClientCompletionItemOptions(snippet_support=True)
            )
        )
        watching = lsp.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
        hints = lsp.InlayHintWorkspaceClientCapabilities(refresh_support=True)
        workspace = lsp.WorkspaceClientCapabilities(did_change_watched_files=watching, inlay_hint=hints)
        found = await self.client.initialize_async(
            lsp.InitializeParams(
                lsp.ClientCapabilities(workspace, document, general=general),
                process_id=os.getpid(),
                workspace_folders=[lsp.WorkspaceFolder(self.root.as_uri(), "tests")],
            )
        )
        self.client.initialized(lsp.InitializedParams())
        return found

    def wait(self, answer: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result(PATIENCE)

    def close(self) -> int:
        """End the server, and return its exit status."""
        return self.wait(self._close())

    async def _close(self) -> int:
        server = self.client._server  # type: ignore[attr-defined]
        assert server is not None
        await self.client.shutdown_async(None)
        self.client.exit(None)
        status = await asyncio.wait_for(server.wait(), PATIENCE)
        await self.client.stop()
        server._transport.close()  # type: ignore[attr-defined]
        return status

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    # --- documents ---------------------------------------------------------------------------------------------------

    def uri(self, name: str) -> str:
        return (self.root / name).as_uri()

    def open(self, name: str, text: str) -> Document:
        """The document of that name with the text, without its `|`s."""
        document = Document(self, self.uri(name), text)
        item = lsp.TextDocumentItem(document.uri, "tsched", 1, document.text)
        self._loop.call_soon_threadsafe(self.client.text_document_did_open, lsp.DidOpenTextDocumentParams(item))
        return document

    def notify(self, call: Any, params: Any) -> None:
        self._loop.call_soon_threadsafe(call, params)

    def diagnostics(self, uri: str, version: int) -> list[lsp.Diagnostic]:
        """What is told of that version of a document, or of a later one."""
        with self._changed:
            known = self._changed.wait_for(lambda: self._told(uri, version), PATIENCE)
        assert known, f"nothing is told of {uri}: {self.messages}"
        return list(known[-1].diagnostics)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, which is asked again whenever diagnostics are told, or hints are to be asked for."""
        with self._changed:
            assert self._changed.wait_for(holds, PATIENCE), self.messages

    def _told(self, uri: str, version: int) -> list[lsp.PublishDiagnosticsParams]:
        return [p for p in self.told.get(uri, []) if p.version is not None and p.version >= version]


class Document:
    """An open document. Its marks are the places of `|` in the text that it was made from."""

    def __init__(self, editor: Editor, uri: str, marked: str) -> None:
        self.editor = editor
        self.client = editor.client
        self.uri = uri
        self.version = 1
        self._take(marked)

    def _take(self, marked: str) -> None:
        parts = marked.split("|")
        self.text = "".join(parts)
        self.marks = [self.at(len("".join(parts[: n + 1]))) for n in range(len(parts) - 1)]

    def at(self, offset: int) -> lsp.Position:
        before = self.text[:offset]
        line = before.rpartition("\n")[2]
        return lsp.Position(before.count("\n"), len(line.encode("utf-16-le")) // 2)

    def place(self, part: str, inside: int = 0) -> lsp.Position:
        """The position of a part of the text, which it has once."""
        assert self.text.count(part) == 1, part
        return self.at(self.text.index(part) + inside)

    def edit(self, marked: str) -> None:
        """Replace the text."""
        self._take(marked)
        self.version += 1
        change = lsp.TextDocumentContentChangeWholeDocument(self.text)
        params = lsp.DidChangeTextDocumentParams(self.identifier, [change])
        self.editor.notify(self.client.text_document_did_change, params)

    @property
    def identifier(self) -> Any:
        return lsp.VersionedTextDocumentIdentifier(self.version, self.uri)

    @property
    def id(self) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(self.uri)

    def diagnostics(self) -> list[lsp.Diagnostic]:
        return self.editor.diagnostics(self.uri, self.version)

    def said(self) -> list[str]:
        """The diagnostics of the text as it stands: code, the text that each is about, and the first line."""
        found: list[str] = []
        for d in self.diagnostics():
            found.append(f"{d.code} `{self.cut(d.range)}`: {d.message.partition(chr(10))[0]}")
        return found

    def cut(self, range_: lsp.Range) -> str:
        """The text of a range."""
        return self.text[self.offset(range_.start) : self.offset(range_.end)]

    def offset(self, position: lsp.Position) -> int:
        lines = self.text.split("\n")
        before = sum(len(line) + 1 for line in lines[: position.line])
        line = lines[position.line].encode("utf-16-le")[: 2 * position.character]
        return before + len(line.decode("utf-16-le"))

    def changed(self, edits: list[lsp.TextEdit]) -> str:
        """The text after some edits, which do not overlap."""
        out = self.text
        for e in sorted(edits, key=lambda e: self.offset(e.range.start), reverse=True):
            out = out[: self.offset(e.range.start)] + e.new_text + out[self.offset(e.range.end) :]
        return out

    # --- questions ---------------------------------------------------------------------------------------------------

    def ask(self, method: str, params: Any) -> Any:
        call = getattr(self.client, f"{method}_async")
        return self.editor.wait(call(params))

    def hover(self, position: lsp.Position) -> str:
        found = self.ask("text_document_hover", lsp.HoverParams(self.id, position))
        return "" if found is None else found.contents.value

    def complete(self, position: lsp.Position | None = None) -> list[str]:
        at = position or self.marks[0]
        found = self.ask("text_document_completion", lsp.CompletionParams(self.id, at))
        return [item.label for item in found.items]

    def definition(self, position: lsp.Position) -> list[str]:
        """Where it is defined: the name of the file, and the line from 1."""
        found = self.ask("text_document_definition", lsp.DefinitionParams(self.id, position))
        return [f"{x.uri.rpartition('/')[2]}:{x.range.start.line + 1}" for x in found]
