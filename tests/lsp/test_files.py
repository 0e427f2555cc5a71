"""Files as they come from other systems: strange names, other line ends, tabs, and characters of two units."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from tensorc_dsl.faces.lsp.commands import is_saved
from tensorc_dsl.faces.lsp.documents import Documents
from tests.lsp.editor import Editor

FOLDER, NAME = "mein Ordner é #1;%41", "dätei [2] 🙂.tsched"

FILE = """\
// 🙂 ⟨é⟩
use hilfe.{ends}
compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
\tC[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule tiled for mm {
\tlet [i, j, k] = C.loops
\tannotate(C, "🙂🙂", "é"); let rows ~ sample_perfect_tile(i, parts=2)
\tlet [i0, i1] = split(i, rows)
\treorder(i0, j, k, i1)
\tends(root)
}
task small = mm(M=16, N=16, K=8) with tiled
"""

HELP = "module ends(p: Program) {\n\tunroll(p.blocks[0].loops[0])\n}\n"


@pytest.fixture(name="editor", params=["utf-16", "utf-8"], scope="module")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    root = tmp_path_factory.mktemp("files") / FOLDER
    root.mkdir()
    (root / NAME).write_bytes(b"\xef\xbb\xbf" + FILE.replace("\n", "\r\n").encode())
    (root / "hilfe.tsched").write_text(HELP)
    editor = Editor(root, encodings=(request.param,))
    try:
        assert editor.capabilities.position_encoding == request.param
        yield editor
        assert editor.close() == 0
    finally:
        editor.stop()
    assert [m for m in editor.messages if "Error" in m] == []


def column(editor: Editor, part: str, inside: str) -> int:
    """Where a part of a line begins, as the editor counts."""
    before = inside[: inside.index(part)]
    return (
        len(before.encode())
        if editor.capabilities.position_encoding == "utf-8"
        else len(before.encode("utf-16-le")) // 2
    )


@pytest.mark.corpus
@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["without mark", "with mark"])
def test_places_are_where_the_editor_counts_them(editor: Editor, start: str) -> None:
    file = editor.open(NAME, start + FILE.replace("\n", "\r\n"))
    assert file.said() == []
    lines = FILE.split("\n")
    n = next(n for n, line in enumerate(lines) if "rows ~" in line)
    at = lsp.Position(n, column(editor, "rows ~", lines[n]))
    assert "`rows`: a list of ints" in file.hover(at)
    edit = file.ask("text_document_rename", lsp.RenameParams(file.id, at, "tall"))
    (changes,) = edit.changes.values()
    assert [(e.range.start.line, e.range.start.character) for e in changes] == [
        (n, at.character), (n + 1, column(editor, "rows)", lines[n + 1])),
    ]  # fmt: skip
    after = lsp.Position(n + 1, column(editor, "rows)", lines[n + 1]))
    assert "rows" in file.complete(after)
    assert file.definition(after) == [f"{file.uri.rpartition('/')[2]}:{n + 1}"]


def test_names_lead_to_the_files(editor: Editor) -> None:
    file = editor.open(NAME, FILE)
    at = lsp.Position(FILE[: FILE.index("\tends")].count("\n"), 2)
    (found,) = file.ask("text_document_definition", lsp.DefinitionParams(file.id, at))
    assert found.uri == editor.uri("hilfe.tsched")
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), file.id, at)
    assert {x.uri for x in file.ask("text_document_references", params)} == {file.uri, found.uri}


@pytest.mark.parametrize("text", [FILE, FILE.replace("\n", "\r\n"), f"\ufeff{FILE}"], ids=["plain", "CRLF", "mark"])
def test_a_text_is_saved_however_its_lines_end(tmp_path: Path, text: str) -> None:
    """Editors may show neither the mark nor the line ends of a file."""
    path = tmp_path / "saved.tsched"
    path.write_bytes(b"\xef\xbb\xbf" + FILE.replace("\n", "\r\n").encode())
    documents = Documents()
    assert is_saved(documents.put(path.as_uri(), text, 1), path)
    assert not is_saved(documents.put(path.as_uri(), text + "\n", 2), path)


def test_a_file_with_another_name_is_another_document(editor: Editor) -> None:
    before = editor.open("before.tsched", HELP)
    assert before.said() == []
    (editor.root / "behind.tsched").write_text(HELP)
    editor.notify(editor.client.text_document_did_close, lsp.DidCloseTextDocumentParams(before.id))
    behind = editor.open("behind.tsched", HELP)
    user = editor.open("uses.tsched", "use behind.{ends}\nspace s for llvm { ends }\n")
    assert behind.said() == [] and user.said() == []
    assert before.hover(lsp.Position(0, 8)) == ""
    Path(editor.root / "behind.tsched").unlink()
