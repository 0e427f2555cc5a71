"""Folding, selection ranges and semantic tokens."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.lsp.structure import MODIFIERS, TYPES, formatting
from tensorc_dsl.syntax.fmt import format_text
from tensorc_dsl.syntax.parse import Text as ReadText
from tensorc_dsl.syntax.parse import read
from tests.lsp.editor import Document, Editor
from tests.lsp.test_names import FILE

ROOT = Path(__file__).resolve().parents[2]


def folds(file: Document) -> list[tuple[int, int]]:
    found = file.ask("text_document_folding_range", lsp.FoldingRangeParams(file.id))
    return sorted((f.start_line + 1, f.end_line + 1) for f in found)


def test_folding(editor: Editor) -> None:
    text = "use std.cpu\nuse std.ops\n\n// one\n// two\nconst a = [\n    1,\n    2\n]\n" + FILE
    found = folds(editor.open("fold.tsched", text))
    assert {(1, 2), (4, 5), (6, 8), (10, 11), (13, 15), (22, 26)} <= set(found)


def test_folding_of_a_torn_file(editor: Editor) -> None:
    assert (4, 6) in folds(editor.open("fold.tsched", FILE.replace("reorder(i0, j, k, i1)", "reorder(i0, ")))


def test_selection_grows_from_the_word_to_the_file(editor: Editor) -> None:
    file = editor.open("select.tsched", FILE)
    params = lsp.SelectionRangeParams(file.id, [file.place("rows)", 1), lsp.Position(0, 0)])
    first, second = file.ask("text_document_selection_range", params)
    seen: list[str] = []
    while first is not None:
        seen.append(file.cut(first.range))
        first = first.parent
    assert seen[:3] == ["rows", "split(i, rows)", "let [i0, i1] = split(i, rows)"]
    assert seen[-1] == FILE
    assert all(inner in outer for inner, outer in pairwise(seen))
    assert file.cut(second.range).startswith("compute mm")


def tokens(file: Document, within: lsp.Range | None = None) -> list[tuple[str, str, frozenset[str]]]:
    """The words with their classes and modifiers."""
    if within is None:
        data = file.ask("text_document_semantic_tokens_full", lsp.SemanticTokensParams(file.id)).data
    else:
        data = file.ask("text_document_semantic_tokens_range", lsp.SemanticTokensRangeParams(file.id, within)).data
    found: list[tuple[str, str, frozenset[str]]] = []
    line = column = 0
    for n in range(0, len(data), 5):
        down, right, length, kind, bits = data[n : n + 5]
        line, column = line + down, (0 if down else column) + right
        word = file.cut(lsp.Range(lsp.Position(line, column), lsp.Position(line, column + length)))
        found.append((word, TYPES[kind].value, frozenset(m.value for k, m in enumerate(MODIFIERS) if bits >> k & 1)))
    return found


def test_semantic_tokens(editor: Editor) -> None:
    file = editor.open("tokens.tsched", f"/// 🙂 a\n{FILE}// 🙂\nuse std.cpu.{{default}}\nconst few = 3 // x\n")
    found = {(word, kind) for word, kind, _ in tokens(file)}
    assert {
        ("/// 🙂 a", "comment"), ("compute", "keyword"), ("mm", "function"), ("A", "parameter"), ("f32", "type"),
        ("sum", "function"), ("4", "number"), ("cut", "function"), ("Block", "type"), ("is_injective", "property"),
        ("split", "function"), ("width", "parameter"), ("rules", "class"), ("llvm", "struct"), ("rows", "variable"),
        ("sample_perfect_tile", "function"), ("small", "event"), ("std", "namespace"), ("default", "class"),
        ("few", "variable"), ("~", "operator"), ("// x", "comment"), ("let", "keyword"), ("when", "keyword"),
    } <= found  # fmt: skip
    modifiers = {word: m for word, _, m in tokens(file)}
    assert "defaultLibrary" in modifiers["split"]
    assert "defaultLibrary" in modifiers["default"]
    assert "readonly" in modifiers["few"]
    assert ("rows", "variable", frozenset({"declaration"})) in tokens(file)


def test_a_try_is_folded_and_its_words_are_classed(editor: Editor) -> None:
    lines = (
        "module m(try: Block) {",
        "    try {",
        "        unroll(try)",
        "    }",
        "    otherwise {",
        "        unroll(try)",
        "    }",
        "}",
    )
    file = editor.open("try.tsched", "\n".join(lines))
    assert folds(file) == [(1, 7), (2, 3), (5, 6)]
    words = [(w, k) for w, k, _ in tokens(file) if w in ("try", "otherwise")]
    assert words == [
        ("try", "parameter"), ("try", "keyword"), ("try", "parameter"), ("otherwise", "keyword"), ("try", "parameter"),
    ]  # fmt: skip


def test_tokens_of_a_range_are_some_of_all(editor: Editor) -> None:
    file = editor.open("tokens.tsched", FILE)
    some = tokens(file, lsp.Range(file.place("space rules"), file.place("schedule tiled")))
    assert ("rules", "class", frozenset({"declaration"})) in some
    assert set(some) <= set(tokens(file))


@pytest.mark.corpus
@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.tsched")), ids=lambda f: f.name)
def test_every_word_of_the_examples_has_a_class(editor: Editor, file: Path) -> None:
    text = file.read_text()
    document = editor.open(f"tokens-{file.name}", text)
    rest = text
    for word, _, _ in tokens(document):
        before, found, rest = rest.partition(word)
        assert found, word
        assert not set(before) - set(" \n()[]{},:;._"), before


def test_tokens_follow_edits(editor: Editor) -> None:
    file = editor.open("tokens.tsched", FILE)
    assert ("both", "function") in {(w, k) for w, k, _ in tokens(file)}
    file.edit("\n" + FILE.replace("module both", "module bath"))
    now = [(w, k) for w, k, _ in tokens(file)]
    assert ("bath", "function") in now
    assert ("both", "function") not in now


def applied(data: list[int], change: lsp.SemanticTokensDelta) -> list[int]:
    """The numbers after the edits, which count from those before."""
    for e in sorted(change.edits, key=lambda e: e.start, reverse=True):
        data = [*data[: e.start], *(e.data or ()), *data[e.start + e.delete_count :]]
    return data


EDITS = {
    "nothing": ("", ""),
    "a word": ("module both", "module bath"),
    "a line": ("    reorder(", "\n    reorder("),
    "more": ("    reorder(", "    unroll(i1)\n    reorder("),
    "less": ("    reorder(i0, j, k, i1)\n", ""),
    "the first": (FILE[: FILE.index("module")], ""),
    "half a line": ("reorder(i0, j, k, i1)", "reorder(i0, "),
    "all": (FILE, "const a = 1\n"),
    "everything": (FILE, ""),
}


@pytest.mark.parametrize(("old", "new"), EDITS.values(), ids=EDITS)
def test_what_changes_of_tokens_gives_all_of_them(editor: Editor, old: str, new: str) -> None:
    file = editor.open("delta.tsched", FILE)
    assert old in FILE
    before = file.ask("text_document_semantic_tokens_full", lsp.SemanticTokensParams(file.id))
    file.edit(FILE.replace(old, new))
    asked = lsp.SemanticTokensDeltaParams(file.id, before.result_id)
    change = file.ask("text_document_semantic_tokens_full_delta", asked)
    assert isinstance(change, lsp.SemanticTokensDelta)
    now = file.ask("text_document_semantic_tokens_full", lsp.SemanticTokensParams(file.id))
    assert applied(list(before.data), change) == list(now.data)
    assert all(e.start % 5 == e.delete_count % 5 == 0 for e in change.edits)
    assert len({before.result_id, change.result_id, now.result_id}) == 3
    if new.startswith("module"):
        assert sum(len(e.data or ()) for e in change.edits) < len(now.data) / 2


def test_tokens_of_an_answer_that_is_forgotten_are_all_told(editor: Editor) -> None:
    file = editor.open("forgotten.tsched", FILE)
    asked = lsp.SemanticTokensDeltaParams(file.id, "no such answer")
    found = file.ask("text_document_semantic_tokens_full_delta", asked)
    assert isinstance(found, lsp.SemanticTokens) and found.result_id is not None and len(found.data) > 100


TEXTS = sorted((ROOT / "stdlib").rglob("*.tsched")) + sorted((ROOT / "examples").rglob("*.tsched"))


def messy(text: str, seed: int) -> str:
    """The text with blanks, empty lines and comments added or taken away, where that leaves its words."""
    rng = random.Random(seed)
    out: list[str] = []
    for line in text.split("\n"):
        change = rng.randrange(8)
        if change == 0 and not line.strip():
            continue
        if change == 1 and line and not line.lstrip().startswith("//"):
            line = f"  {line.strip()}   "
        out.append(line)
        if change == 2 and not line.startswith("///"):
            out += [""] * rng.randrange(1, 3)
        if change == 3 and not line.startswith("///"):
            out.append("// a remark")
    return "\n".join(out)


def edited(text: str, edits: list[lsp.TextEdit]) -> str:
    """The text after the edits. Those at one place are made in their order."""
    starts = [0, *(n + 1 for n, c in enumerate(text) if c == "\n")]
    for e in reversed(edits):
        start, end = (
            starts[p.line] + p.character if p.line < len(starts) else len(text) for p in (e.range.start, e.range.end)
        )
        text = text[:start] + e.new_text + text[end:]
    return text


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(4))
def test_a_text_is_formatted_item_by_item_as_it_is_as_a_whole(seed: int) -> None:
    rng = random.Random(seed)
    for path in rng.sample(TEXTS, 12):
        text = messy(path.read_text(encoding="utf-8"), seed)
        try:
            whole = format_text(Source("<text>", text))
        except TschedError:
            assert formatting(text) == []
            continue
        assert edited(text, formatting(text)) == whole, path


def test_an_edit_formats_one_item(monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[str] = []

    def counted(source: Source) -> ReadText:
        formatted.append(source.text)
        return read(source)

    text = format_text(Source("<text>", FILE))
    assert formatting(text) == []
    monkeypatch.setattr("tensorc_dsl.faces.lsp.structure.read", counted)
    (edit,) = formatting(text.replace("    unroll(parts[1])", "  unroll( parts[1] )"))
    assert edit.new_text == "    unroll(parts[1])\n"
    assert [text.partition("(")[0] for text in formatted] == ["\nmodule cut"]
