"""What an editor may do to a server: hostile texts, files that go away, edits faster than answers, and many of them."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import tracemalloc
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from tensorc_dsl.faces.lsp.documents import LARGEST, Documents, uri_of
from tensorc_dsl.faces.lsp.findings import diagnostics
from tensorc_dsl.faces.lsp.server import make_server
from tests.lsp.editor import Document, Editor
from tests.lsp.test_basics import FILE


def asked(file: Document, at: lsp.Position) -> None:
    """Ask everything about a place: each question has an answer."""
    whole = lsp.Range(lsp.Position(0, 0), file.at(len(file.text)))
    file.hover(at)
    file.complete(at)
    file.definition(at)
    file.ask("text_document_signature_help", lsp.SignatureHelpParams(file.id, at))
    file.ask("text_document_references", lsp.ReferenceParams(lsp.ReferenceContext(True), file.id, at))
    file.ask("text_document_document_highlight", lsp.DocumentHighlightParams(file.id, at))
    file.ask("text_document_prepare_rename", lsp.PrepareRenameParams(file.id, at))
    file.ask("text_document_document_symbol", lsp.DocumentSymbolParams(file.id))
    file.ask("text_document_folding_range", lsp.FoldingRangeParams(file.id))
    file.ask("text_document_selection_range", lsp.SelectionRangeParams(file.id, [at]))
    file.ask("text_document_semantic_tokens_full", lsp.SemanticTokensParams(file.id))
    file.ask("text_document_prepare_call_hierarchy", lsp.CallHierarchyPrepareParams(file.id, at))
    file.ask("text_document_inlay_hint", lsp.InlayHintParams(file.id, whole))
    file.ask("text_document_code_lens", lsp.CodeLensParams(file.id))
    file.ask("text_document_formatting", lsp.DocumentFormattingParams(file.id, lsp.FormattingOptions(4, True)))
    context = lsp.CodeActionContext(list(file.diagnostics()))
    file.ask("text_document_code_action", lsp.CodeActionParams(file.id, whole, context))
    arguments = [file.uri, {"line": at.line, "character": at.character}, None, None]
    params = lsp.ExecuteCommandParams("tensorc-dsl.programAfterStep", arguments)
    file.ask("workspace_execute_command", params)


HOSTILE = {
    "deep brackets": "const a = " + "[" * 5_000,
    "deep blocks": "schedule s for f {\n" + "if true {\n" * 1_000,
    "closers": "}" * 3_000 + FILE,
    "NUL": "\0" + FILE.replace("=", "\0="),
    "controls": FILE.replace(" ", "\x1b[31m"),
    "surrogates": FILE.replace("C = A", "\ud83d\ude42 \ud800 \udfff"),
    "line ends": FILE.replace("\n", "\r\n") + "\u2028 \x0b \x0c \x85\r const a = 1\r",
    "byte order mark": "\ufeff" + FILE,
    "one line": FILE.replace("\n", " ") * 20,
    "a long word": "a" * 100_000,
    "many items": "const a = 1\n" * 300,
    "unclosed": 'const a = "' + "x" * 1_000 + FILE,
    "words": "compute module use schedule let ~ := for { ( [ " * 50,
    "empty": "",
    "uses itself": "use hostile.{a}\nconst a = 1\n",
    "in circles": "module a(b: Block) { c(b) }\nmodule c(b: Block) { a(b) }\nspace s for llvm { s }\n",
    "right to left": FILE.replace("rows", "\u202erows\u202c"),
    "huge numbers": "task t = mm(M=" + "9" * 5_000 + ")\n" + FILE,
}


@pytest.mark.corpus
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts(editor: Editor, text: str) -> None:
    file = editor.open("hostile.tsched", text)
    for at in (lsp.Position(4, 25), lsp.Position(10**6, 10**6)):
        asked(file, at)
    file.edit(FILE)
    assert file.said() == []


def test_a_large_text_is_left_alone(editor: Editor) -> None:
    file = editor.open("large.tsched", "// x\n" * (LARGEST // 5 + 1))
    (found,) = file.diagnostics()
    assert found.severity == lsp.DiagnosticSeverity.Information
    assert file.hover(lsp.Position(3, 3)) == ""


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(2))
def test_random_places_of_broken_texts(editor: Editor, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        text = FILE
        for _ in range(rng.randrange(1, 6)):
            n = rng.randrange(len(text))
            text = (
                text[:n]
                + rng.choice(["", "{", "}", "(", "~", ".", '"', "\n", "let ", "\0", "🙂"])
                + text[n + rng.randrange(4) :]
            )
        file = editor.open("random.tsched", text)
        asked(file, file.at(rng.randrange(len(text))))


def test_a_file_that_is_deleted_under_it(editor: Editor) -> None:
    shelf = editor.root / "gone.tsched"
    shelf.write_text("module gone(b: Block) { parallel(b.loops[0]) }\n")
    user = editor.open("left.tsched", "use gone.{gone}\nspace s for llvm { gone }\n")
    assert user.said() == []
    assert lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES in editor.registered
    shelf.unlink()
    user.edit(user.text + "\n")
    assert "E0232 `gone`: `gone` is not found" in user.said()
    asked(user, user.place("gone }"))
    shelf.write_bytes(b"\xff\xfe not UTF-8 \x00")
    event = lsp.FileEvent(shelf.as_uri(), lsp.FileChangeType.Created)
    user.editor.notify(user.client.workspace_did_change_watched_files, lsp.DidChangeWatchedFilesParams([event]))
    user.edit(user.text + "\n")
    assert any(x.startswith("E0902") for x in user.said())
    shelf.write_text("module gone(b: Block) { parallel(b.loops[0]) }\n")
    user.editor.notify(user.client.workspace_did_change_watched_files, lsp.DidChangeWatchedFilesParams([event]))
    user.edit(user.text + "\n")
    assert user.said() == []


def test_a_hundred_edits_are_told_in_few_messages(editor: Editor) -> None:
    file = editor.open("fast.tsched", FILE)
    assert file.said() == []
    told = len(editor.told[file.uri])
    for n in range(100):
        file.edit(FILE + "// " + "x" * n)
        file.editor.notify(file.client.text_document_did_save, lsp.DidSaveTextDocumentParams(file.id))
    file.edit(FILE.replace("split(i, rows)", "splti(i, rows)"))
    assert [x.partition(" ")[0] for x in file.said()] == ["E0223"]
    assert len(editor.told[file.uri]) - told < 60
    last = editor.told[file.uri][-1]
    assert last.version == file.version


def test_answers_are_about_the_text_that_was_sent_last(editor: Editor) -> None:
    for n in range(20):
        file = editor.open("order.tsched", f"const name{n} = {n}\n")
        assert f"name{n} = {n}" in file.hover(file.place(f"name{n}"))


def test_a_request_can_be_cancelled(editor: Editor) -> None:
    file = editor.open("cancel.tsched", FILE)
    editor.notify(editor.client.cancel_request, lsp.CancelParams("no such request"))
    assert file.said() == []


@pytest.mark.corpus
def test_memory_stays_flat_over_many_edits(tmp_path: Path) -> None:
    path = tmp_path / "memory.tsched"
    documents = Documents()
    document = documents.put(uri_of(path), FILE, 0)

    def edit(version: int) -> None:
        line = ["    unroll(i1)\n", "    unroll(\n", "    let x = 1\n", ""][version % 4]
        text = FILE.replace("    reorder", f"{line}    // {version}\n    reorder")
        diagnostics(documents.analysis(documents.put(document.uri, text, version)), document)

    for version in range(20):
        edit(version)
    tracemalloc.start()
    try:
        for version in range(20, 40):
            edit(version)
        before = tracemalloc.get_traced_memory()[0]
        for version in range(40, 100):
            edit(version)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # An analysis of this file takes some 200 kB; caches of limited size may still grow.
    assert after - before < 1_000_000


@pytest.mark.corpus
def test_nothing_is_kept_of_messages_that_were_handled(tmp_path: Path) -> None:
    server = make_server(None, ())
    server.protocol.set_writer(_Unread())
    uri = uri_of(tmp_path / "memory.tsched")

    def say(method: str, params: dict[str, Any], **number: int) -> None:
        message: Any = {"jsonrpc": "2.0", "method": method, "params": params, **number}
        server.protocol.handle_message(message)

    async def edits() -> None:
        say("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, id=1)
        say("initialized", {})
        document = {"uri": uri, "languageId": "tsched", "version": 0, "text": FILE}
        say("textDocument/didOpen", {"textDocument": document})
        for version in range(1, 30):
            text = FILE + f"// {version}\n"
            changed = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]}
            say("textDocument/didChange", changed)
            if version == 10:
                await asyncio.sleep(0)
                kept.append(_futures())
        await asyncio.sleep(0)
        kept.append(_futures())

    kept: list[int] = []
    asyncio.run(edits())
    assert 0 < kept[1] <= kept[0]


class _Unread:
    """A writer to an editor that reads nothing."""

    def close(self) -> None: ...

    def write(self, data: bytes) -> None: ...


def _futures() -> int:
    gc.collect()
    # Millions of objects of other tests: `isinstance` takes seconds to look at each.
    return list(map(type, gc.get_objects())).count(Future)


def test_the_server_ends_when_the_editor_is_gone(tmp_path: Path) -> None:
    editor = Editor(tmp_path)
    server = editor.client._server  # type: ignore[attr-defined]
    assert server is not None

    async def leave() -> int:
        assert server.stdin is not None
        server.stdin.close()
        return await server.wait()

    try:
        editor.wait(leave())
        editor.wait(editor.client.stop())
        server._transport.close()  # type: ignore[attr-defined]
        time.sleep(0)
    finally:
        editor.stop()
