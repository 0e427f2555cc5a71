"""Quick fixes, references, rename, symbols and the hierarchy of calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.documents import Documents
from tensorc_dsl.faces.lsp.navigation import rename
from tensorc_dsl.faces.lsp.parts import Piece, read_part
from tests.lsp.editor import Document, Editor

FILE = """\
compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
module cut(b: Block, width = 4) when b.is_injective {
    let parts = split(b.loops[0], [_, width])
    unroll(parts[1])
}
module both(b: Block) {
    cut(b)
    cut(b, width=8)
}
space rules for llvm { both; cut(width=2) }
schedule tiled for mm {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2)
    let [i0, i1] = split(i, rows)
    reorder(i0, j, k, i1)
}
task small = mm(M=16, N=16, K=8) with tiled
"""


# --- quick fixes -------------------------------------------------------------------------------------------------------


def fixes(file: Document) -> dict[str, str]:
    """The text after each quick fix, by its title."""
    found = file.diagnostics()
    whole = lsp.Range(lsp.Position(0, 0), file.at(len(file.text)))
    params = lsp.CodeActionParams(file.id, whole, lsp.CodeActionContext(found))
    actions = file.ask("text_document_code_action", params)
    return {a.title: file.changed(a.edit.changes[file.uri]) for a in actions}


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("right", "wrong", "title"),
    [
        ("split(i, rows)", "splti(i, rows)", "Change to `split`"),
        ("let [i, j, k] = C.loops", "let [i, j, k] = C.lops", "Change to `loops`"),
        ("with tiled", "with tilde", "Change to `tiled`"),
        ("(M=16, N=16", "(M=16, 🙂N=16", ""),
        ("= mm(M=16", "= mn(M=16", "Change to `mm`"),
        ("split(i, rows)", "split(i, row)", "Change to `rows`"),
        ("sample_perfect_tile", "sample_perfect_tiles", "Change to `sample_perfect_tile`"),
        ("cut(b, width=8)", "cut(b, widht=8)", "Change to `width`"),
        ("{ both; cut", "{ botj; cut", "Change to `both`"),
        ("b.is_injective", "b.is_injectiv", "Change to `is_injective`"),
        ("A[i, k] * B[k, j]", "A[i, k] * BB[k, j]", "Change to `B`"),
        ("A[i, k] * B[k, j]", "A[i, k] · B[k, j]", "Write `*`"),
    ],
)
def test_a_fix_makes_the_file_right(editor: Editor, right: str, wrong: str, title: str) -> None:
    file = editor.open("fix.tsched", FILE.replace(right, wrong, 1))
    found = fixes(file)
    if title:
        assert found.get(title) == FILE, list(found)
    else:
        assert found == {}


def test_a_name_of_the_library_is_brought(editor: Editor) -> None:
    found = fixes(editor.open("bring.tsched", "task small = softmax(M=4, N=4)\nspace s for llvm { auto_inline }\n"))
    assert any(t.startswith("`use std.ops.") and "softmax" in t for t in found)
    assert any("auto_inline" in t for t in found)


def test_what_is_unused_is_marked(editor: Editor) -> None:
    file = editor.open("unused.tsched", FILE.replace("    unroll(parts[1])\n", ""))
    (found,) = file.diagnostics()
    assert list(found.tags or ()) == [lsp.DiagnosticTag.Unnecessary]
    assert "    split(b.loops[0], [_, width])\n" in fixes(file)["Keep the call alone"]
    assert "let _parts = " in fixes(file)["Call it `_parts`"]


# --- references and rename ---------------------------------------------------------------------------------------------


def places(file: Document, at: lsp.Position, definition: bool = True) -> list[str]:
    params = lsp.ReferenceParams(lsp.ReferenceContext(definition), file.id, at)
    found = file.ask("text_document_references", params)
    return sorted(f"{x.uri.rpartition('/')[2]}:{x.range.start.line + 1}" for x in found)


def test_references(editor: Editor) -> None:
    file = editor.open("refs.tsched", FILE)
    assert places(file, file.place("cut(b, ")) == ["refs.tsched:10", "refs.tsched:12", "refs.tsched:4", "refs.tsched:9"]
    assert len(places(file, file.place("cut(b, "), definition=False)) == 3
    assert places(file, file.place("rows)")) == ["refs.tsched:15", "refs.tsched:16"]
    assert places(file, file.place("mm(M")) == ["refs.tsched:1", "refs.tsched:13", "refs.tsched:19"]
    assert places(file, file.place("= sum")) == []


def test_references_across_files(editor: Editor) -> None:
    (editor.root / "shared_cut.tsched").write_text("module shared(b: Block) { parallel(b.loops[0]) }\n")
    (editor.root / "closed.tsched").write_text("use shared_cut.{shared}\nspace s for llvm { shared }\n")
    file = editor.open("opened.tsched", "use shared_cut.{shared}\n\nspace t for llvm { shared }\n")
    assert places(file, file.place("shared }")) == [
        "closed.tsched:1", "closed.tsched:2", "opened.tsched:1", "opened.tsched:3", "shared_cut.tsched:1",
    ]  # fmt: skip
    edit = file.ask("text_document_rename", lsp.RenameParams(file.id, file.place("shared }"), "common"))
    assert {uri.rpartition("/")[2]: len(x) for uri, x in edit.changes.items()} == {
        "closed.tsched": 2,
        "opened.tsched": 2,
        "shared_cut.tsched": 1,
    }
    assert file.changed(edit.changes[file.uri]).count("common") == 2


def test_highlights(editor: Editor) -> None:
    file = editor.open("refs.tsched", FILE)
    found = file.ask("text_document_document_highlight", lsp.DocumentHighlightParams(file.id, file.place("rows)")))
    assert [x.kind for x in found] == [lsp.DocumentHighlightKind.Write, lsp.DocumentHighlightKind.Read]


def renamed(editor: Editor, place: str, new: str) -> str:
    file = editor.open("rename.tsched", FILE)
    edit = file.ask("text_document_rename", lsp.RenameParams(file.id, file.place(place), new))
    return file.changed(edit.changes[file.uri])


@pytest.mark.parametrize(
    ("place", "old", "new", "count"),
    [
        ("rows)", "rows", "tile", 2),
        ("mm(M", "mm", "product", 3),
        ("i1)\n}", "i1", "inner", 2),
        ("width])", "width", "breadth", 4),
    ],
)
def test_rename(editor: Editor, place: str, old: str, new: str, count: int) -> None:
    after = renamed(editor, place, new)
    assert after.count(new) - FILE.count(new) == count
    file = editor.open("rename.tsched", after)
    assert file.said() == []


@pytest.mark.parametrize(
    ("place", "new", "why"),
    [
        ("rows)", "i", "something would mean something else"),
        ("rows)", "let", "`let` is a word of the language"),
        ("rows)", "two words", "is not a name"),
        ("cut(b, ", "both", "something would mean something else"),
        ("split(i", "cut_up", "there is no name of this file here"),
    ],
)
def test_what_cannot_be_renamed(editor: Editor, place: str, new: str, why: str) -> None:
    with pytest.raises(JsonRpcException, match=why):
        renamed(editor, place, new)


def test_the_name_that_would_be_changed(editor: Editor) -> None:
    file = editor.open("rename.tsched", FILE)
    found = file.ask("text_document_prepare_rename", lsp.PrepareRenameParams(file.id, file.place("rows)", 2)))
    assert found.placeholder == "rows"
    assert file.cut(found.range) == "rows"
    assert file.ask("text_document_prepare_rename", lsp.PrepareRenameParams(file.id, file.place("split(i"))) is None


PASSED = """\
module cut(b: Block, width: int = 4) {
    split(b.loops[0], [_, width])
}
module both(b: Block, epilogue: Module(Block) = cut) {
    let narrow = cut(width=2)
    narrow(b, width=3)
    epilogue(b)
}
module outer(b: Block, f: Module(T), x: T) {
    both(b, epilogue=cut)
    both(b, cut(width=8))
    f(x)
}
"""


@pytest.mark.parametrize(
    ("place", "old", "new", "count"),
    [
        ("cut(b: ", "cut", "shorten", 5),
        ("cut)\n", "cut", "shorten", 5),
        ("epilogue(b)", "epilogue", "last", 3),
        ("epilogue=cut)\n", "epilogue", "last", 3),
        ("narrow(b", "narrow", "thin", 2),
        ("f(x)", "f", "apply_it", 2),
        ("T), x", "T", "U", 2),
    ],
)
def test_what_is_passed_on_is_renamed(editor: Editor, place: str, old: str, new: str, count: int) -> None:
    file = editor.open("passed.tsched", PASSED.replace("narrow(b, width=3)", "narrow(b)"))
    edit = file.ask("text_document_rename", lsp.RenameParams(file.id, file.place(place), new))
    changes = edit.changes[file.uri]
    assert [file.cut(c.range) for c in changes] == [old] * count
    assert editor.open("passed.tsched", file.changed(changes)).said() == []


def test_a_parameter_is_renamed_where_a_passed_module_gets_it(editor: Editor) -> None:
    file = editor.open("passed.tsched", PASSED.replace("    narrow(b, width=3)\n", ""))
    edit = file.ask("text_document_rename", lsp.RenameParams(file.id, file.place("width: int"), "size"))
    after = file.changed(edit.changes[file.uri])
    assert "cut(size=2)" in after and "cut(size=8)" in after and "width" not in after


def test_a_passed_module_is_found(editor: Editor) -> None:
    file = editor.open("passed.tsched", PASSED)
    assert "module cut(b: Block, width: int = 4)" in file.hover(file.place("cut)\n"))
    assert "epilogue: Module(Block)" in file.hover(file.place("epilogue(b)"))
    assert "a module of a block" in file.hover(file.place("narrow(b"))
    assert file.definition(file.place("cut)\n")) == file.definition(file.place("cut(b: "))
    assert file.definition(file.place("epilogue(b)")) == file.definition(file.place("epilogue: "))
    params = lsp.ReferenceParams(lsp.ReferenceContext(False), file.id, file.place("cut(b: "))
    assert len(file.ask("text_document_references", params)) == 4
    params = lsp.CallHierarchyPrepareParams(file.id, file.place("cut(b: "))
    (cut,) = file.ask("text_document_prepare_call_hierarchy", params)
    callers = file.ask("call_hierarchy_incoming_calls", lsp.CallHierarchyIncomingCallsParams(cut))
    assert {c.from_.name: len(c.from_ranges) for c in callers} == {"both": 2, "outer": 2}


def test_what_is_passed_on_is_found_across_files(editor: Editor) -> None:
    (editor.root / "leaf.tsched").write_text("module leaf(b: Block, width = 4) { split(b.loops[0], [_, width]) }\n")
    (editor.root / "mid.tsched").write_text(
        "use leaf.{leaf}\nmodule mid(b: Block, end: Module = leaf(width=2)) { end(b) }\n"
    )
    file = editor.open("top.tsched", "use leaf.{leaf}\nuse mid.{mid}\n\nmodule top(b: Block) { mid(b, end=leaf) }\n")
    assert file.said() == []
    assert places(file, file.place("leaf) }")) == [
        "leaf.tsched:1", "mid.tsched:1", "mid.tsched:2", "top.tsched:1", "top.tsched:4",
    ]  # fmt: skip
    edit = file.ask("text_document_rename", lsp.RenameParams(file.id, file.place("end=leaf"), "last"))
    assert {uri.rpartition("/")[2]: len(x) for uri, x in edit.changes.items()} == {"mid.tsched": 2, "top.tsched": 1}
    assert "leaf(b: Block, width = 4)" in file.hover(file.place("leaf) }"))


# --- symbols -----------------------------------------------------------------------------------------------------------


def test_document_symbols(editor: Editor) -> None:
    file = editor.open("symbols.tsched", FILE)
    found = file.ask("text_document_document_symbol", lsp.DocumentSymbolParams(file.id))
    assert [s.name for s in found] == ["mm", "cut", "both", "rules", "tiled", "small"]
    assert [s.name for s in found[0].children] == ["A", "B", "C"]
    assert [s.name for s in found[4].children] == ["rows"]
    for s in (*found, *(c for f in found for c in f.children)):
        assert file.cut(s.selection_range) == s.name
        assert file.offset(s.range.start) <= file.offset(s.selection_range.start)
        assert file.offset(s.selection_range.end) <= file.offset(s.range.end)


def test_symbols_of_a_torn_file(editor: Editor) -> None:
    file = editor.open("symbols.tsched", FILE.replace("reorder(i0, j, k, i1)", "reorder(i0, "))
    found = file.ask("text_document_document_symbol", lsp.DocumentSymbolParams(file.id))
    assert [s.name for s in found] == ["mm", "cut", "both", "rules", "tiled", "small"]


def test_workspace_symbols(editor: Editor) -> None:
    (editor.root / "elsewhere.tsched").write_text("const a_rare_name = 3\n")
    editor.open("here.tsched", "const another_rare_name = 3\n")
    found = editor.wait(editor.client.workspace_symbol_async(lsp.WorkspaceSymbolParams("rarename")))
    assert found is not None
    assert {s.name for s in found} == {"a_rare_name", "another_rare_name"}


# --- calls -------------------------------------------------------------------------------------------------------------


def test_call_hierarchy(editor: Editor) -> None:
    file = editor.open("calls.tsched", FILE)
    at = lsp.CallHierarchyPrepareParams(file.id, file.place("cut(b, "))
    (cut,) = file.ask("text_document_prepare_call_hierarchy", at)
    assert (cut.name, cut.detail) == ("cut", "module")
    callers = file.ask("call_hierarchy_incoming_calls", lsp.CallHierarchyIncomingCallsParams(cut))
    assert {c.from_.name: len(c.from_ranges) for c in callers} == {"both": 2, "rules": 1}
    (both,) = [c.from_ for c in callers if c.from_.name == "both"]
    called = file.ask("call_hierarchy_outgoing_calls", lsp.CallHierarchyOutgoingCallsParams(both))
    assert [(c.to.name, len(c.from_ranges)) for c in called] == [("cut", 2)]


@pytest.mark.parametrize(("word", "new", "refused"), [("mm(M", "a_longer_name", False), ("cut(b, ", "both", True)])
def test_a_rename_reads_what_changes_and_leaves_the_document_as_it_is(
    word: str, new: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = Documents()
    document = documents.put((tmp_path / "a.tsched").as_uri(), FILE, 1)
    before = facts(documents.analysis(document))
    read: list[str] = []

    def counted(name: str, text: str) -> Piece:
        read.append(text)
        return read_part(name, text)

    monkeypatch.setattr("tensorc_dsl.faces.lsp.parts.read_part", counted)
    analysis = documents.analysis(document)
    place = analysis.text.position(FILE.index(word))
    if refused:
        with pytest.raises(JsonRpcException, match="something would mean something else"):
            rename(documents, analysis, place, new)
    else:
        rename(documents, analysis, place, new)
    assert 0 < len(read) < len(analysis.pieces)
    assert all(new in text for text in read)
    assert facts(documents.analysis(document)) == before
    rename(documents, documents.analysis(document), place, "other")
    assert facts(documents.analysis(document)) == before


def facts(analysis: Analysis) -> list[object]:
    """What is known of a document: its findings, and each name with where it is defined."""
    names = [(f.start, f.end, analysis.places(f.definition)) for i in analysis.items for f in analysis.found_in(i)]
    return [*((d.code, d.message) for d, _ in analysis.findings()), *names]
