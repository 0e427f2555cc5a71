"""Diagnostics, hover, definition, completion, signatures and formatting, of whole and of half-typed files."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.lsp.analysis import Text
from tensorc_dsl.syntax.fmt import format_text
from tests.lsp.editor import Editor

FILE = """\
use std.cpu.{default}

/// C = A · B
compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule tiled for mm {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2)
    let [i0, i1] = split(i, rows)
    reorder(i0, j, k, i1)
}
module cut(b: Block, width = 4) when b.is_injective {
    split(b.loops[0], [_, width])
}
task small = mm(M=16, N=16, K=8) with tiled
"""


def test_a_right_file_has_no_findings(editor: Editor) -> None:
    assert editor.open("right.tsched", FILE).said() == []


def test_findings_come_and_go_while_the_file_is_written(editor: Editor) -> None:
    file = editor.open("typed.tsched", FILE.replace("split(i, rows)", "splti(i, rows)"))
    assert file.said() == ["E0223 `splti`: there is no primitive, module or function `splti`"]
    file.edit(FILE.replace("reorder(i0, j, k, i1)", "reorder(i0, j, k, "))
    (found,) = file.said()
    assert found.startswith("E0103")
    file.edit(FILE.replace("K=8", "L=8"))
    assert "no dimension" in file.said()[0] or "`L`" in file.said()[0]
    file.edit(FILE)
    assert file.said() == []


def test_the_rest_of_a_torn_file_is_checked(editor: Editor) -> None:
    torn = FILE.replace("    reorder(i0, j, k, i1)\n", "    reorder(i0, j,\n").replace("b.loops[0]", "b.lops[0]")
    codes = [x.partition(" ")[0] for x in editor.open("torn.tsched", torn).said()]
    assert len(codes) == 2 and codes == ["E0103", "E0226"]
    assert "with tiled" in torn  # of which nothing is said


TORN = {
    "a bracket": FILE.replace("reorder(i0, j, k, i1)", "reorder(i0, j, k"),
    "the end": f"{FILE}schedule open for mm {{",
    "a second item": f"{FILE}compute mm(A: f32[M]) -> B: f32[M] {{ B[i] = A[i] }}\n",
}
"""Texts with a finding of which a note names a place."""


@pytest.mark.parametrize("name", TORN)
def test_a_note_names_the_line_in_the_whole_text(editor: Editor, name: str) -> None:
    """An item is read by itself, and keeps what was read while it moves."""
    file = editor.open(f"{name}.tsched", TORN[name])
    for above in ("", "// one\n", "// one\n// two\n\n"):
        file.edit(above + TORN[name])
        with pytest.raises(TschedError) as caught:
            load_source(Source(str(editor.root / f"{name}.tsched"), above + TORN[name]))
        wanted = next(n for d in caught.value.diagnostics for n in d.notes if n.at)
        found = next((d for d in file.diagnostics() if f"note: {wanted.text}" in d.message), None)
        assert found is not None, (wanted.text, [d.message for d in file.diagnostics()])
        (link,) = found.related_information or [None]
        assert link is not None and wanted.at is not None
        assert link.location.uri == file.uri
        assert file.offset(link.location.range.start) == wanted.at.start


@pytest.mark.parametrize("at", range(0, len(FILE), 61))
def test_a_file_may_end_anywhere(editor: Editor, at: int) -> None:
    file = editor.open("half.tsched", FILE[:at])
    file.complete(file.at(at))
    file.hover(file.at(max(0, at - 2)))
    for finding in file.diagnostics():
        assert finding.range.start.line <= FILE[:at].count("\n")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("split(i, rows)", "A nest of loops"),
        ("sample_perfect_tile", "~>"),
        ("rows)", "a list of ints"),
        ("i0, j, k", "a loop"),
        ("A[i, k]", "in `small`: `A: f32[16, 8]`"),
        ("mm {", "C = A · B"),
        ("width])", "width = 4"),
        ("is_injective", "whether"),
        ("default}", "space default for llvm"),
        ("parts=2", "parameter `parts` of `sample_perfect_tile`"),
    ],
)
def test_hover(editor: Editor, place: str, says: str) -> None:
    file = editor.open("hover.tsched", FILE)
    assert says.lower() in file.hover(file.place(place)).lower()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("i.can_split([_, 4], partial=true)", "l.can_split(factors: [int or _], *, partial"),
        ("k.can_reorder(i)", "The named loops trade places"),
        ("i.can_tile(j, [4, 4])", "Each loop is `split`"),
        ('root.find_block("C += _")', "p.find_block(pattern: pattern)"),
    ],
)
def test_hover_of_a_question(editor: Editor, asked: str, says: str) -> None:
    file = editor.open("asked.tsched", FILE.replace("    reorder(", f'    annotate(C, "x", {asked})\n    reorder('))
    assert says in file.hover(file.place(asked.partition(".")[2]))


def test_hover_of_a_view(editor: Editor) -> None:
    text = "compute f(X: f32[4, 6]) -> Y: f32[24] {\n    let V[i in 4] = view(X[i, 0])\n    Y[i] = V[i / 6]\n}\n"
    file = editor.open("view.tsched", text)
    assert "without a copy" in file.hover(file.place("view("))


def test_hover_says_nothing_between_names(editor: Editor) -> None:
    file = editor.open("hover.tsched", FILE)
    assert file.hover(file.place("= sum[k]")) == ""


@pytest.mark.parametrize(
    ("place", "there"),
    [
        ("rows)", ["define.tsched:9"]),
        ("mm {", ["define.tsched:4"]),
        ("C.loops", ["define.tsched:4"]),
        ("tiled\n", ["define.tsched:7"]),
        ("default}", ["default.tsched:5"]),
        ("split(i,", []),
    ],
)
def test_definition(editor: Editor, place: str, there: list[str]) -> None:
    file = editor.open("define.tsched", FILE)
    assert file.definition(file.place(place)) == there


def test_definition_in_another_file_as_it_stands_in_the_editor(editor: Editor) -> None:
    (editor.root / "shelf.tsched").write_text("// nothing yet\n")
    editor.open("shelf.tsched", "\nmodule first(b: Block) { parallel(b.loops[0]) }\n")
    user = editor.open("user.tsched", "use shelf.{first}\nspace s for llvm { first }\n")
    assert user.said() == []
    assert user.definition(user.place("first }")) == ["shelf.tsched:2"]


def test_findings_follow_the_files_that_are_used(editor: Editor) -> None:
    (editor.root / "shelf2.tsched").write_text("// nothing yet\n")
    shelf = editor.open("shelf2.tsched", "module first(b: Block) { parallel(b.loops[0]) }\n")
    user = editor.open("user2.tsched", "use shelf2.{first}\nspace s for llvm { first }\n")
    assert user.said() == []
    shelf.edit("module second(b: Block) { parallel(b.loops[0]) }\n")
    editor.until(lambda: bool(user.said()))
    assert user.said()[0] == "E0235 `first`: `shelf2` has no `first`"


def test_a_new_file_is_found_before_it_is_saved(editor: Editor) -> None:
    user = editor.open("user3.tsched", "use shelf3.{first}\nuse box.one.{second}\nspace s for llvm { first; second }\n")
    assert [said[:5] for said in user.said()] == ["E0232", "E0232"]
    shelf = editor.open("shelf3.tsched", "module first(b: Block) { parallel(b.loops[0]) }\n")
    editor.open("box/one.tsched", "\nmodule second(b: Block) { parallel(b.loops[0]) }\n")
    editor.until(lambda: user.said() == [])
    assert user.definition(user.place("second }")) == ["one.tsched:2"]
    assert "shelf3" in editor.open("user4.tsched", "use |").complete()
    editor.notify(editor.client.text_document_did_close, lsp.DidCloseTextDocumentParams(shelf.id))
    editor.until(lambda: [said[:5] for said in user.said()] == ["E0232"])


BODY = "schedule s for mm {{\n    let [i, j, k] = C.loops\n    {}\n}}\n"
HEAD = FILE.partition("schedule")[0]


@pytest.mark.parametrize(
    ("line", "has", "lacks"),
    [
        ("|", ["let", "split", "i", "C"], ["compute"]),
        ("spl|", ["split"], []),
        (
            "let x = i.|",
            ["extent", "can_vectorize", "can_split", "can_tile", "find_block"],
            ["loops", "can_cache_write"],
        ),
        ("let x = root.|", ["find_loops", "can_annotate"], ["can_split"]),
        ("let x = i.can_split(factors=[_, 4], |)", ["partial="], ["factors=", "loop="]),
        ("let x = C.loops[0].|", ["extent"], ["loops"]),
        ("let x = C.|", ["loops", "is_injective"], ["extent"]),
        ("let x ~ |", ["sample_perfect_tile", "sample_categorical"], ["split"]),
        ("let [a, b] = split(i, |", ["factors=", "partial=", "j"], ["loop="]),
        ("split(i, factors=[_, 4], |)", ["partial="], ["factors="]),
        ("try { unroll(i) } |", ["otherwise", "try", "let"], []),
        ("try { unroll(i) } otherwise { par|", ["parallel"], []),
        ("spl|", ["try"], ["otherwise"]),
        ("let na|", [], ["split"]),
        ("// spl|", [], ["split"]),
    ],
)
def test_completion_in_a_body(editor: Editor, line: str, has: list[str], lacks: list[str]) -> None:
    file = editor.open("complete.tsched", HEAD + BODY.format(line))
    labels = file.complete()
    assert set(has) <= set(labels), labels
    assert not set(lacks) & set(labels)


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        ("|", ["compute", "schedule", "use"], ["split"]),
        ("use |", ["std", "complete"], []),
        ("use std.|", ["cpu", "ops"], ["matmul"]),
        ("use std.ops.{|", ["matmul", "softmax"], []),
        ("use std.ops.{matmul, |}", ["softmax"], ["matmul"]),
        (f"{FILE}task t = |", ["mm"], ["tiled"]),
        (f"{FILE}task t = mm(|)", ["M=", "N=", "K="], []),
        (f"{FILE}task t = mm(M=4, |)", ["N="], ["M="]),
        (f"{FILE}task t = mm(M=4, N=4, K=4) with |", ["tiled", "default"], ["mm"]),
        (f"{FILE}schedule t for |", ["mm"], ["tiled"]),
        (f"{FILE}space t for |", ["llvm"], ["tiled"]),
        (f"{FILE}space t for llvm {{\n    |\n}}", ["cut", "default"], ["split"]),
        ("compute f(A: |", ["f32", "bf16"], []),
        ("compute f(A: f32[M]) -> B: f32[M] {\n    B[i] = ex|\n}", ["exp", "sum", "A", "view"], ["split"]),
        ("module m(b: |", ["Block", "Loop"], []),
        ("module m(b: Module(Block, |", ["Block", "Loop"], ["split"]),
        (
            f"{FILE}module m(f: Module, b: Block) {{ f(b) }}\nmodule n(b: Block) {{\n    m(|\n}}",
            ["cut", "f="],
            ["split"],
        ),
        (f"{FILE}module m(b: Block, f: Module) {{ f(b) }}\nmodule n(b: Block) {{\n    m(b, f=|\n}}", ["cut"], []),
        (f"{FILE}module m(b: Block, f: Module) {{ f(b) }}\nmodule n(b: Block) {{\n    m(|\n}}", ["b"], ["cut"]),
    ],
)
def test_completion_of_items(editor: Editor, text: str, has: list[str], lacks: list[str]) -> None:
    (editor.root / "complete.tsched").touch()
    file = editor.open("items.tsched", text)
    labels = file.complete()
    assert set(has) <= set(labels), labels
    assert not set(lacks) & set(labels)


@pytest.mark.parametrize(
    ("line", "label", "active"),
    [
        ("split(|", "split(loop: a loop, factors: a list of ints", "loop"),
        ("split(i, [_, |4])", "split(", "factors"),
        ("split(i, partial=|)", "split(", "partial"),
        ("let x ~ sample_categorical(|", "sample_categorical(", "values"),
        ("cut(C, |)", "cut(b: Block, width = 4)", "width"),
        ("let e = cut(width=8)\n    e(|)", "e(b: a block)", "b"),
    ],
)
def test_signature_help(editor: Editor, line: str, label: str, active: str) -> None:
    head = HEAD + "module cut(b: Block, width = 4) { split(b.loops[0], [_, width]) }\n"
    file = editor.open("signature.tsched", head + BODY.format(line))
    found = file.ask("text_document_signature_help", lsp.SignatureHelpParams(file.id, file.marks[0]))
    (signature,) = found.signatures
    assert signature.label.startswith(label)
    start, end = signature.parameters[found.active_parameter].label
    assert active in signature.label[start:end]


def test_signature_help_outside_of_calls(editor: Editor) -> None:
    file = editor.open("signature.tsched", HEAD + BODY.format("split(i, [_, 4]) |"))
    assert file.ask("text_document_signature_help", lsp.SignatureHelpParams(file.id, file.marks[0])) is None


def formatted(editor: Editor, text: str) -> str:
    file = editor.open("format.tsched", text)
    params = lsp.DocumentFormattingParams(file.id, lsp.FormattingOptions(4, True))
    return file.changed(file.ask("text_document_formatting", params))


@pytest.mark.parametrize(
    "text", ["task a=f( M=1 )", "// ⟨🙂⟩\ntask  a = f(M=1)\n\n\n\nconst b=2\n", "const a = 1\n", "", "\n\n"]
)
def test_formatting(editor: Editor, text: str) -> None:
    assert formatted(editor, text) == format_text(Source("x", text))


def test_lines_are_formatted(editor: Editor) -> None:
    lines = ["const a=1", "", "const b=2", "", "const c=3", "task t=f(M=1)", ""]
    file = editor.open("format.tsched", "\n".join(lines))
    options = lsp.FormattingOptions(4, True)
    for first, last, character, changed in ((2, 2, 9, {2}), (2, 3, 0, {2}), (0, 2, 1, {0, 2}), (4, 5, 0, {4})):
        within = lsp.Range(lsp.Position(first, 0), lsp.Position(last, character))
        edits = file.ask("text_document_range_formatting", lsp.DocumentRangeFormattingParams(file.id, within, options))
        wanted = [line.replace("=", " = ") if n in changed else line for n, line in enumerate(lines)]
        assert file.changed(edits).split("\n") == wanted, (first, last)


def test_a_text_that_does_not_parse_stays_as_it_is(editor: Editor) -> None:
    assert formatted(editor, "task a=f( M=") == "task a=f( M="


# --- positions ---------------------------------------------------------------------------------------------------------


def test_positions_count_utf_16(editor: Editor) -> None:
    line = 'let x = "🙂🙂"; let [i, j] = no_such(C, "🙂")'
    file = editor.open("wide.tsched", HEAD + BODY.format(line))
    (found,) = [d for d in file.diagnostics() if d.severity == lsp.DiagnosticSeverity.Error][:1]
    assert file.cut(found.range) == "no_such"
    assert found.range.start.character == 4 + len(line.partition("no_such")[0]) + 2
    assert "a buffer" in file.hover(file.place("C, ")) or "C: f32" in file.hover(file.place("C, "))


def test_positions_in_another_encoding(tmp_path: Path) -> None:
    editor = Editor(tmp_path, encodings=("utf-8",))
    try:
        line = 'let x = "🙂"; no_such(C)'
        file = editor.open("wide.tsched", HEAD + BODY.format(line))
        found = next(d for d in file.diagnostics() if "no_such" in d.message)
        before = "    " + line.partition("no_such")[0]
        assert found.range.start.character == len(before.encode())
        assert editor.close() == 0
    finally:
        editor.stop()


TEXT = "a🙂b\n\n⟨é⟩ 🙂🙂\nlast"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_every_character_has_a_position(encoding: str) -> None:
    text = Text(Source("x", TEXT), encoding)
    positions = [text.position(n) for n in range(len(TEXT) + 1)]
    assert [text.offset(p) for p in positions] == [*range(len(TEXT) + 1)]
    assert text.offset(lsp.Position(0, 10**9)) == TEXT.index("\n")
    assert text.offset(lsp.Position(10**9, 0)) == len(TEXT)
    assert text.position(10**9) == positions[-1]
    widths = {"utf-8": 4, "utf-16": 2, "utf-32": 1}
    assert positions[2].character - positions[1].character == widths[encoding]


def test_half_of_a_character_is_none_of_it() -> None:
    assert Text(Source("x", TEXT)).offset(lsp.Position(0, 2)) == 1


def test_files_are_looked_for_in_the_folders_of_the_command(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "there/shared.tsched").write_text("compute twice(A: f32[N]) -> B: f32[N] { B[i] = A[i] + A[i] }\n")
    editor = Editor(tmp_path / "here", "-I", str(tmp_path / "there"))
    try:
        document = editor.open("own.tsched", "use shared.{twice}\ntask t = twice(N=4)\n")
        assert editor.diagnostics(document.uri, 1) == []
        assert editor.close() == 0
    finally:
        editor.stop()
