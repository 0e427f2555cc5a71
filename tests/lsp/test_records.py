"""What records say in the text: inlay hints, hover, code lenses, and the program after a step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from tensorc_dsl.faces.api.tasks import load
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tests.lsp.editor import Document, Editor

FILE = """\
compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
module ends(p: Program) {
    let most ~ sample_categorical([0, 16, 64])
    annotate(p, "unroll.max_step", most)
}
schedule tiled for mm {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2)
    let columns ~ sample_perfect_tile(j, parts=2) := [4, 4]
    let [i0, i1] = split(i, rows)
    let [j0, j1] = split(j, columns)
    reorder(i0, j0, k, i1, j1)
    maybe(70) wide {
        vectorize(j1)
    }
    ends(root)
}
task small = mm(M=16, N=16, K=8) with tiled
task untuned = mm(M=32, N=16, K=8) with tiled
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """An editor whose server reads a database with three trials of `small`."""
    root = tmp_path_factory.mktemp("tuned")
    (root / "tuned.tsched").write_text(FILE)
    task = load(root / "tuned.tsched")["small"]
    trials: list[Trial] = []
    for n, (rows, seconds) in enumerate([((4, 4), 2e-6), ((8, 2), 1e-6), ((8, 2), 1.5e-6)]):
        decisions = {"rows": rows, "wide": n != 2, "most": 16}
        keys = program_key(task.program), target_key(task.target, task.threads)
        text = f"schedule s for mm {{ let x = {n} }}\n"
        trials.append(Trial(*keys, "small", "random", 0, n, "ok", decisions, text, f"program {n}", seconds, (seconds,)))
    with Database.open(root / "records.sqlite") as database:
        database.add_all(trials)
    editor = Editor(root, "--records", str(root / "records.sqlite"))
    try:
        yield editor
        assert editor.close() == 0
    finally:
        editor.stop()


@pytest.fixture(name="file")
def opened(tuned: Editor) -> Document:
    return tuned.open("tuned.tsched", FILE)


def hints(file: Document) -> dict[str, str]:
    """The line that each hint stands at the end of, and the hint."""
    whole = lsp.Range(lsp.Position(0, 0), file.at(len(file.text)))
    found = file.ask("text_document_inlay_hint", lsp.InlayHintParams(file.id, whole))
    return {file.text[: file.offset(h.position)].rpartition("\n")[2].strip(): h.label for h in found}


def test_inlay_hints(file: Document) -> None:
    assert hints(file) == {
        "let most ~ sample_categorical([0, 16, 64])": "⟵ 16",
        "let rows ~ sample_perfect_tile(i, parts=2)": "⟵ [8, 2]",
        "maybe(70) wide": "⟵ true",
    }


def test_hints_are_of_the_text_as_it_stands(file: Document) -> None:
    file.edit(FILE.replace("parts=2)\n    let columns", "parts=3)\n    let columns"))
    assert "let rows ~ sample_perfect_tile(i, parts=3)" not in hints(file)
    file.edit(FILE.replace("M=16, N=16", "M=48, N=16"))
    assert hints(file) == {}
    file.edit("\n\n" + FILE)
    assert len(hints(file)) == 3


def test_a_hint_can_be_taken_into_the_text(file: Document) -> None:
    file.edit(FILE)
    whole = lsp.Range(lsp.Position(0, 0), file.at(len(file.text)))
    found = file.ask("text_document_inlay_hint", lsp.InlayHintParams(file.id, whole))
    edits = [e for h in found for e in h.text_edits or ()]
    pinned = FILE.replace("[0, 16, 64])", "[0, 16, 64]) := 16").replace("(i, parts=2)", "(i, parts=2) := [8, 2]")
    assert file.changed(edits) == pinned
    file.edit(pinned)
    assert file.said() == [] and hints(file) == {"maybe(70) wide": "⟵ true"}
    file.edit(FILE)


def actions(file: Document, place: str, only: list[str] | None = None) -> dict[str, str]:
    """The text after each action at a place, by its title."""
    at = file.place(place)
    context = lsp.CodeActionContext([], only=None if only is None else [lsp.CodeActionKind(k) for k in only])
    found = file.ask("text_document_code_action", lsp.CodeActionParams(file.id, lsp.Range(at, at), context))
    return {a.title: file.changed(a.edit.changes[file.uri]) for a in found}


def test_a_draw_is_pinned_to_the_value_of_the_record(file: Document) -> None:
    file.edit(FILE)
    pinned = {
        "Pin `rows` to [8, 2], as in the best record of `small`": FILE.replace("(i, parts=2)", "(i, parts=2) := [8, 2]")
    }
    assert actions(file, "rows ~") == actions(file, "rows ~", ["refactor"]) == pinned
    assert actions(file, "rows ~", ["quickfix"]) == {}
    assert actions(file, "columns ~") == {}
    assert actions(file, "maybe(70)") == {}


def test_draws_of_a_file_that_is_used_are_told_beside_its_user(tuned: Editor) -> None:
    head, end = FILE.index("module ends"), FILE.index("schedule tiled")
    ends = "// 🙂 saved otherwise\n" + FILE[head:end]
    (tuned.root / "ends.tsched").write_text("const nothing = 1\n")
    alone = tuned.open("ends.tsched", ends)
    assert hints(alone) == {}
    user = tuned.open("user.tsched", "use ends.{ends}\n" + FILE[:head] + FILE[end:])
    assert user.said() == []
    assert hints(alone) == {"let most ~ sample_categorical([0, 16, 64])": "⟵ 16"}
    assert "**16** in the best record of `small`" in alone.hover(alone.place("most ~"))
    assert list(actions(alone, "most ~")) == ["Pin `most` to 16, as in the best record of `small`"]
    before = tuned.refreshed
    alone.edit("\n" + ends.replace("[0, 16, 64]", "[0, 16, 32]"))
    tuned.until(lambda: tuned.refreshed > before)
    assert hints(alone) == {"let most ~ sample_categorical([0, 16, 32])": "⟵ 16"}
    user.edit("use ends.{ends}\n")
    assert hints(alone) == {}


def test_hover_tells_the_values_of_a_draw(file: Document) -> None:
    file.edit(FILE)
    said = file.hover(file.place("rows ~"))
    assert "**[8, 2]** in the best record of `small`" in said
    assert "| `[8, 2]` | 2 |" in said
    assert "| `[4, 4]` | 1 |" in said
    assert "3 valid trials" in file.hover(file.place("small ="))


def test_code_lenses(file: Document) -> None:
    found = file.ask("text_document_code_lens", lsp.CodeLensParams(file.id))
    assert [x.command.title for x in found if x.command] == 2 * ["tune", "run", "show program"]
    resolved = [file.ask("code_lens_resolve", x) for x in found if not x.command]
    best, none = [x.command.title for x in resolved]
    assert best.startswith("best 1.00 µs") and "% of" in best
    assert none == "not tuned on this machine"


def after(file: Document, at: lsp.Position, task: str | None = None, decisions: Any = None) -> Any:
    arguments = [file.uri, {"line": at.line, "character": at.character}, task, decisions]
    params = lsp.ExecuteCommandParams("tensorc-dsl.programAfterStep", arguments)
    return file.ask("workspace_execute_command", params)


def test_the_program_after_a_step(file: Document) -> None:
    first = after(file, file.place("let [i, j, k]"))
    assert first["task"] == "small"
    assert "for i in 16, j in 16, k in 8 {" in first["program"]
    split = after(file, file.place("split(i, rows)", 3))
    assert "i_0 in 8, i_1 in 2" in split["program"]
    assert split["step"]["start"]["line"] == FILE[: FILE.index("let [i0")].count("\n")
    assert "vectorized" in after(file, file.place("vectorize(j1)"))["program"]
    assert split["problem"] == ""
    assert {"name": "rows", "value": "[8, 2]"}.items() <= split["draws"][0].items()


def test_the_program_with_other_decisions(file: Document) -> None:
    found = after(file, file.place("split(i, rows)", 3), "small", {"rows": "[2, 8]"})
    assert "i_0 in 2, i_1 in 8" in found["program"]
    assert "`[[`" in after(file, file.place("split(i"), "small", {"rows": "[["})["problem"]
    assert "i_0 in " in after(file, file.place("split(i, rows)", 3), "untuned")["program"]


def test_the_program_after_a_step_of_a_module(file: Document) -> None:
    assert '@("unroll.max_step", 16)' in after(file, file.place('annotate(p, "unroll', 3))["program"]


def test_a_step_that_is_refused_is_told(file: Document) -> None:
    file.edit(FILE.replace("split(i, rows)", "split(i, [3, 3])"))
    found = after(file, file.place("reorder(i0"))
    assert "E0312" in found["problem"]
    assert "for i in 16, j in 16" in found["program"]
    file.edit(FILE)


def test_a_step_that_was_undone_has_the_program_after_its_try(file: Document) -> None:
    ordered = "reorder(i0, j0, k, i1, j1)"
    file.edit(FILE.replace(ordered, f"try {{ unroll(i1); parallel(k) }} otherwise {{ {ordered} }}"))
    found = after(file, file.place("unroll(i1)"))
    assert found["problem"] == ""
    assert "unrolled" not in found["program"] and "i_0 in 8, j_0 in 4, k in 8, i_1 in 2" in found["program"]
    assert found["program"] == after(file, file.place(ordered))["program"]
    file.edit(FILE)


def test_the_program_of_a_task(file: Document) -> None:
    params = lsp.ExecuteCommandParams("tensorc-dsl.show", [file.uri, "small"])
    assert "vectorized" in file.ask("workspace_execute_command", params)["program"]


def test_run(file: Document, tuned: Editor) -> None:
    (tuned.root / "tuned.tsched").write_text(FILE)
    params = lsp.ExecuteCommandParams("tensorc-dsl.run", [file.uri, "small"])
    assert "the result is right" in file.ask("workspace_execute_command", params)


def test_a_file_that_is_not_saved_is_not_run(tuned: Editor) -> None:
    file = tuned.open("unsaved.tsched", FILE)
    params = lsp.ExecuteCommandParams("tensorc-dsl.tune", [file.uri, "small"])
    assert file.ask("workspace_execute_command", params) == "save the file first: `tune` reads it"
    assert not list(Path(tuned.root).glob("*.best.tsched"))
