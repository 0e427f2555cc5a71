"""Refusals of the schedules that are drawn first are diagnostics at their steps, also where the text itself is right."""

from __future__ import annotations

import pytest

from tensorc_dsl.faces.lsp import findings
from tensorc_dsl.faces.lsp.documents import Documents
from tensorc_dsl.faces.lsp.findings import refusal_diagnostics, try_all, untried
from tensorc_dsl.interp.expand import Late
from tests.lsp.editor import Document, Editor

FILE = """\
compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
module race(b: Block) { STEP(b.loops[-1]) }
space rules for llvm { race }
schedule tiled for mm {
    let [i, j, k] = C.loops
    let f ~ sample_perfect_tile(i, parts=2) := PIN
    let [i0, i1] = split(i, f)
    KIND(k)
}
task one = mm(M=64, N=16, K=8) with tiled
task two = mm(M=64, N=16, K=8) with tiled
task three = mm(M=64, N=16, K=8) with rules
"""


def text(step: str = "unroll", pin: str = "[4, 16]", kind: str = "unroll") -> str:
    return FILE.replace("STEP", step).replace("PIN", pin).replace("KIND", kind)


def says(document: Document, *starts: str) -> None:
    """The editor is told of so many findings that begin like these."""

    def told() -> bool:
        said = document.said()
        return len(said) == len(starts) and all(a.startswith(b) for a, b in zip(said, starts, strict=True))

    document.editor.until(told)


PARALLEL = "E0330 `k`: the iterations of `k` cannot run at once"
PINNED = "E0504 `[4, 17]`: `f` cannot be pinned to [4, 17]"
LEFT_OUT = "E0330 `b.loops[-1]`: the iterations of `k` cannot run at once"


def test_refusals_come_and_go_with_the_text(editor: Editor) -> None:
    file = editor.open("refused.tsched", text(kind="parallel"))
    says(file, PARALLEL)
    (found,) = file.diagnostics()
    assert "help: " in found.message and "the program at this point" not in found.message
    file.edit(text(pin="[4, 17]", kind="parallel"))
    says(file, PINNED)
    file.edit(text(step="parallel"))
    says(file, LEFT_OUT)
    assert "rule `race` is left out on `C`" in file.diagnostics()[0].message
    file.edit(text())
    says(file)
    file.edit("\n" + text(step="parallel", kind="parallel"))
    says(file, LEFT_OUT, PARALLEL)


def test_a_task_is_expanded_again_only_if_it_means_something_else() -> None:
    documents = Documents()
    document = documents.put("untitled:tried", text(kind="parallel"), 1)
    known = documents.analysis(document)
    assert [str(t.name) for t in untried(known)] == ["one", "two", "three"]
    try_all(known, 60)
    assert list(untried(known)) == [] and len(refusal_diagnostics(known)) == 1
    document = documents.put("untitled:tried", "// moved\n\n" + text(step="parallel", kind="parallel"), 2)
    known = documents.analysis(document)
    assert [str(t.name) for t in untried(known)] == ["three"]
    (found,) = refusal_diagnostics(known)
    assert found.range.start.line == 9
    documents.put("untitled:tried", text(step="no_such_step"), 3)
    assert list(untried(documents.analysis(document))) == []  # a text with errors


def test_a_task_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise Late

    monkeypatch.setattr(findings, "refusals", late)
    documents = Documents()
    known = documents.analysis(documents.put("untitled:long", text(), 1))
    try_all(known, 60)
    assert [d.message.partition(" takes")[0] for d in refusal_diagnostics(known)] == [
        f"a schedule of `{name}`" for name in ("one", "two", "three")
    ]
