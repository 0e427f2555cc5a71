"""The server: it keeps the documents, and hands each request to its feature."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from tensorc_dsl.faces.lsp import navigation
from tensorc_dsl.faces.lsp import navigation as renaming
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.commands import KIND as PIN
from tensorc_dsl.faces.lsp.commands import SHOW, add_commands, best_of, code_lenses, inlay_hints, pins, refresh
from tensorc_dsl.faces.lsp.completion import completion
from tensorc_dsl.faces.lsp.cursor import hover, signature_help
from tensorc_dsl.faces.lsp.documents import Document, Documents, file_of
from tensorc_dsl.faces.lsp.findings import diagnostics, quick_fixes, refusal_diagnostics, try_task, untried
from tensorc_dsl.faces.lsp.navigation import FILTERS, definition, highlights, moves, references
from tensorc_dsl.faces.lsp.protocol import Answering, Ready, lsp_converter
from tensorc_dsl.faces.lsp.records import Records
from tensorc_dsl.faces.lsp.structure import (
    LEGEND,
    all_tokens,
    changed_tokens,
    folding,
    formatting,
    selection,
    semantic_tokens,
    symbols,
    workspace_symbols,
)
from tensorc_dsl.faces.report.entries import entries
from tensorc_dsl.syntax.tree import TaskDef
from tensorc_dsl.tuning.machine.roof import Roof

QUIET, LATEST = 0.04, 0.25
"""Seconds without an edit before diagnostics are sent, and seconds of edits after which they are sent anyway."""

PAUSE = 0.5
"""Seconds without an edit before schedules are drawn, to find what is refused."""


class Server(LanguageServer):
    """`documents` are open, and use files of the folders `include`, too; `records` is the database of searches."""

    def __init__(self, records: Path | None, include: Sequence[str]) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "tensorc-dsl",
            version("tensorc-dsl"),
            text_document_sync_kind=lsp.TextDocumentSyncKind.Full,
            protocol_cls=Answering,
            converter_factory=lsp_converter,
            max_workers=2,
        )
        self.documents = Documents(include)
        self.records = Records(records)
        self.roofs: dict[str, Roof | None] = {}
        self._told: dict[str, Analysis] = {}
        self._edited = ""
        self._waiting: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._trying: dict[str, asyncio.TimerHandle] = {}

    def analysis(self, uri: str) -> Analysis | None:
        """What is known of an open document as it stands; None for others."""
        document = self.documents.open.get(uri)
        return None if document is None else self.documents.analysis(document)

    # --- diagnostics -------------------------------------------------------------------------------------------------

    def tell_soon(self, uri: str) -> None:
        """Tell the diagnostics of a document when its writer pauses."""
        loop = asyncio.get_running_loop()
        since, handle = self._waiting.pop(uri, (loop.time(), None))
        if handle is not None:
            handle.cancel()
        when = min(loop.time() + QUIET, since + LATEST)
        self._waiting[uri] = since, loop.call_at(when, self._tell, uri)

    def _tell(self, uri: str) -> None:
        self._waiting.pop(uri, None)
        document = self.documents.open.get(uri)
        if document is not None:
            self.tell(document)

    def tell(self, document: Document) -> None:
        known = self.documents.analysis(document)
        if self._told.get(document.uri) is known:
            return  # nothing has changed, for this document
        if document.uri in self._told and document.uri != self._edited:
            refresh(self)  # facts about another document's draws are known now
        self._told[document.uri] = known
        self._publish(document, known)
        self._try_soon(document.uri, known, untried(known), PAUSE)

    def _publish(self, document: Document, known: Analysis) -> None:
        found = [*diagnostics(known, document), *refusal_diagnostics(known)]
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(document.uri, found, version=document.version)
        )

    def _try_soon(self, uri: str, known: Analysis, tasks: Iterator[TaskDef], seconds: float) -> None:
        """Draw a schedule of the next of some tasks of a document; that of an older version is not drawn any more."""
        if (handle := self._trying.pop(uri, None)) is not None:
            handle.cancel()
        self._trying[uri] = asyncio.get_running_loop().call_later(seconds, self._try, uri, known, tasks)

    def _try(self, uri: str, known: Analysis, tasks: Iterator[TaskDef]) -> None:
        """As above, now; other requests are answered before that of the one after it."""
        self._trying.pop(uri, None)
        document = self.documents.open.get(uri)
        if document is None or uri in self._waiting or self.documents.analysis(document) is not known:
            return
        task = next(tasks, None)
        if task is not None:
            try_task(known, task)
            self._try_soon(uri, known, tasks, 0)
        elif refusal_diagnostics(known):
            self._publish(document, known)

    def edited(self, uri: str) -> None:
        """The editor itself requests the inlay hints of the document that was edited last."""
        self._edited = uri

    def forget(self, uri: str) -> None:
        """A closed document has no diagnostics."""
        self._told.pop(uri, None)
        if (handle := self._trying.pop(uri, None)) is not None:
            handle.cancel()

    def tell_others(self, uri: str) -> None:
        """Tell the diagnostics of the other documents, which may use this one."""
        for other in self.documents.open:
            if other != uri:
                self.tell_soon(other)

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """A bug is written to the log, which editors show on demand; the server goes on."""
        if source is JsonRpcException and isinstance(error, ValueError | RecursionError):
            assert isinstance(self.protocol, Answering)
            self.protocol.cannot_read()
            return
        if isinstance(error, JsonRpcException) and not isinstance(error, JsonRpcInternalError):
            return  # the editor has been told
        self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, f"{source.__name__}: {error}"))


def make_server(records: Path | None, include: Sequence[str]) -> Server:
    """A server with all of its features."""
    server = Server(records, include)
    _documents(server)
    _answers(server)
    _overviews(server)
    _across(server)
    _from_records(server)
    add_commands(server)
    return server


def serve(records: Path | None, include: Sequence[str]) -> None:
    """Serve one editor over standard input and output, until it says exit or is gone."""
    out = sys.stdout.buffer
    # What anything below prints would garble the messages.
    sys.stdout = sys.stderr
    make_server(records, include).start_io(sys.stdin.buffer, out)


def _documents(server: Server) -> None:
    """Notifications of the editor about its documents and files."""
    documents = server.documents

    @server.feature(lsp.INITIALIZED)
    async def initialized(_: lsp.InitializedParams) -> None:
        # The first of these takes a second.
        server.thread_pool.submit(entries, "")
        workspace = server.workspace
        documents.encoding = str(getattr(workspace.position_encoding, "value", workspace.position_encoding))
        for uri, folder in workspace.folders.items():
            if path := file_of(folder.uri):
                documents.folders[uri] = path
        known = server.client_capabilities.workspace
        if known is not None and known.did_change_watched_files and known.did_change_watched_files.dynamic_registration:
            watcher = lsp.DidChangeWatchedFilesRegistrationOptions([lsp.FileSystemWatcher("**/*.tsched")])
            wanted = lsp.Registration("files", lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, watcher)
            await server.client_register_capability_async(lsp.RegistrationParams([wanted]))

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(params: lsp.DidChangeWorkspaceFoldersParams) -> None:
        for folder in params.event.removed:
            documents.folders.pop(folder.uri, None)
        for folder in params.event.added:
            if path := file_of(folder.uri):
                documents.folders[folder.uri] = path

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        opened = params.text_document
        documents.put(opened.uri, opened.text, opened.version)
        server.tell_soon(opened.uri)
        server.tell_others(opened.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        text = server.workspace.get_text_document(uri).source
        documents.put(uri, text, params.text_document.version)
        server.edited(uri)
        server.tell_soon(uri)
        server.tell_others(uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        documents.look_again()
        server.tell_soon(params.text_document.uri)
        server.tell_others(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        documents.close(uri)
        server.forget(uri)
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))
        server.tell_others(uri)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(params: lsp.DidChangeWatchedFilesParams) -> None:
        if any(change.type is not lsp.FileChangeType.Changed for change in params.changes):
            documents.files_came_or_went()
        server.tell_others("")


def _answers(server: Server) -> None:
    """The answers about one place of a document."""

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def on_hover(params: lsp.HoverParams) -> lsp.Hover | None:
        known = server.analysis(params.text_document.uri)
        if known is None:
            return None
        return hover(known, params.position, server.records, server.documents.users(known))

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "~", "(", "{", ","]))
    def on_completion(params: lsp.CompletionParams) -> lsp.CompletionList | None:
        known = server.analysis(params.text_document.uri)
        return None if known is None else completion(known, params.position, _snippets(server), server.records)

    options = lsp.SignatureHelpOptions(trigger_characters=["(", ","], retrigger_characters=["=", ")"])

    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, options)
    def on_signature_help(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        known = server.analysis(params.text_document.uri)
        return None if known is None else signature_help(known, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def on_definition(params: lsp.DefinitionParams) -> list[lsp.Location]:
        known = server.analysis(params.text_document.uri)
        return [] if known is None else definition(known, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def on_formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        document = server.documents.open.get(params.text_document.uri)
        return [] if document is None else formatting(document.text)

    @server.feature(lsp.TEXT_DOCUMENT_RANGE_FORMATTING)
    def on_range_formatting(params: lsp.DocumentRangeFormattingParams) -> list[lsp.TextEdit]:
        document = server.documents.open.get(params.text_document.uri)
        return [] if document is None else formatting(document.text, params.range)


def _overviews(server: Server) -> None:
    """The answers about a whole document."""

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def on_symbols(params: lsp.DocumentSymbolParams) -> Ready:
        known = server.analysis(params.text_document.uri)
        return Ready() if known is None else symbols(known)

    @server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
    def on_folding(params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
        known = server.analysis(params.text_document.uri)
        return [] if known is None else folding(known)

    @server.feature(lsp.TEXT_DOCUMENT_SELECTION_RANGE)
    def on_selection(params: lsp.SelectionRangeParams) -> list[lsp.SelectionRange]:
        known = server.analysis(params.text_document.uri)
        return [] if known is None else selection(known, [*params.positions])

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, LEGEND)
    def on_tokens(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens | None:
        document = server.documents.open.get(params.text_document.uri)
        return None if document is None else all_tokens(server.documents, document)

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA, LEGEND)
    def on_changed_tokens(
        params: lsp.SemanticTokensDeltaParams,
    ) -> lsp.SemanticTokens | lsp.SemanticTokensDelta | None:
        document = server.documents.open.get(params.text_document.uri)
        return None if document is None else changed_tokens(server.documents, document, params.previous_result_id)

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, LEGEND)
    def on_some_tokens(params: lsp.SemanticTokensRangeParams) -> lsp.SemanticTokens | None:
        known = server.analysis(params.text_document.uri)
        return None if known is None else lsp.SemanticTokens(semantic_tokens(known, params.range))

    kinds = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix, PIN])

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, kinds)
    def on_code_action(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        known = server.analysis(params.text_document.uri)
        if known is None:
            return []
        users = server.documents.users(known)
        found = [*quick_fixes(known, params), *pins(known, params.range, server.records, users)]
        return found if params.context.only is None else [a for a in found if _is_wanted(a, params.context.only)]


def _across(server: Server) -> None:
    """The answers that other files have a part in."""
    documents = server.documents

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def on_references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        known = server.analysis(params.text_document.uri)
        return (
            [] if known is None else references(documents, known, params.position, params.context.include_declaration)
        )

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def on_highlight(params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        known = server.analysis(params.text_document.uri)
        return [] if known is None else highlights(known, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def on_prepare_rename(params: lsp.PrepareRenameParams) -> lsp.PrepareRenamePlaceholder | None:
        known = server.analysis(params.text_document.uri)
        return None if known is None else renaming.prepare(known, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def on_rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        known = server.analysis(params.text_document.uri)
        return None if known is None else renaming.rename(documents, known, params.position, params.new_name)

    @server.feature(lsp.WORKSPACE_WILL_RENAME_FILES, FILTERS)
    def on_moves(params: lsp.RenameFilesParams) -> lsp.WorkspaceEdit | None:
        return moves(documents, [*params.files])

    @server.feature(lsp.WORKSPACE_SYMBOL)
    def on_workspace_symbol(params: lsp.WorkspaceSymbolParams) -> list[lsp.WorkspaceSymbol]:
        return workspace_symbols(documents, params.query)

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY)
    def on_hierarchy(params: lsp.CallHierarchyPrepareParams) -> list[lsp.CallHierarchyItem]:
        known = server.analysis(params.text_document.uri)
        return [] if known is None else navigation.call_hierarchy_prepare(known, params.position)

    @server.feature(lsp.CALL_HIERARCHY_INCOMING_CALLS)
    def on_incoming(params: lsp.CallHierarchyIncomingCallsParams) -> list[lsp.CallHierarchyIncomingCall]:
        return navigation.incoming(documents, params.item)

    @server.feature(lsp.CALL_HIERARCHY_OUTGOING_CALLS)
    def on_outgoing(params: lsp.CallHierarchyOutgoingCallsParams) -> list[lsp.CallHierarchyOutgoingCall]:
        return navigation.outgoing(documents, params.item)


def _from_records(server: Server) -> None:
    """The answers that the records of searches give."""

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def on_inlay_hint(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        known = server.analysis(params.text_document.uri)
        if known is None:
            return []
        return inlay_hints(known, params.range, server.records, server.documents.users(known))

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS, lsp.CodeLensOptions(resolve_provider=True))
    def on_code_lens(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        known = server.analysis(params.text_document.uri)
        return [] if known is None else code_lenses(known)

    @server.feature(lsp.CODE_LENS_RESOLVE)
    def on_resolve(lens: lsp.CodeLens) -> lsp.CodeLens:
        match lens.data:
            case {"uri": str(uri), "task": str(task)}:
                known = server.analysis(uri)
            case _:
                raise JsonRpcInvalidParams("this lens is none of the server's")
        if known is not None:
            title = best_of(known, task, server.records, server.roofs)
            lens.command = lsp.Command(title, SHOW, arguments=[uri, task])
        return lens


def _is_wanted(action: lsp.CodeAction, kinds: Sequence[lsp.CodeActionKind | str]) -> bool:
    """Whether an action is of one of the kinds; `refactor` stands for all that begin with it."""
    own = "" if action.kind is None else lsp.CodeActionKind(action.kind).value
    return any(f"{own}.".startswith(f"{getattr(kind, 'value', kind)}.") for kind in kinds)


def _snippets(server: Server) -> bool:
    """Whether the editor fills in the places of a text."""
    known = server.client_capabilities.text_document
    item = known and known.completion and known.completion.completion_item
    return bool(item and item.snippet_support)
