"""How generated parts and examples are put into pages."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from docs.generate.errors import raised
from docs.generate.pages import filled, markers, with_lists
from tensorc_dsl.faces.report.entries import parameters, plain, prose, table
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tests.docs.pages import Run, applied, fences, sessions

PAGE = "before\n\n<!-- generated: x -->\nold\n<!-- end: x -->\n\nafter\n"


def test_a_part_is_filled_once_and_stays() -> None:
    page = filled(PAGE, {"x": lambda: "new\n"})
    assert page == "before\n\n<!-- generated: x -->\n\nnew\n\n<!-- end: x -->\n\nafter\n"
    assert filled(page, {"x": lambda: "new\n"}) == page
    assert markers(page) == ["x"]


def test_a_marker_that_nothing_fills_is_an_error() -> None:
    with pytest.raises(KeyError, match="x"):
        filled(PAGE, {})


def test_a_list_of_the_site_is_in_its_page_only_there() -> None:
    page = "before\n\n<!-- on the site: x -->\n"
    assert filled(page, {}) == page
    assert with_lists(page, {"x": lambda: "new\n"}) == "before\n\nnew\n"
    with pytest.raises(KeyError, match="x"):
        with_lists(page, {})


def test_a_bar_in_a_cell_is_escaped() -> None:
    assert table(["a"], [["b|c"]]) == "| a |\n| --- |\n| b\\|c |"


def test_facts_of_messages_become_names() -> None:
    assert plain("`{loop}` has {extent} of {len(x)}, `{a.b}`") == "*loop* has *extent* of …, …"


def test_a_rewrite_in_a_docstring_is_a_fence() -> None:
    doc = "What holds.\n\nfor i: s  ->  s\n\nMore.  Cases: tests/primitives/split.md"
    assert prose(doc).split("\n\n") == [
        "What holds.",
        "```text\nfor i: s  ->  s\n```",
        "More.  Cases: [tests/primitives/split.md](../../tests/primitives/split.md)",
    ]


def test_signatures_are_written_as_the_language_has_them() -> None:
    split = PRIMITIVES["split"].signature
    assert parameters(split) == "loop: Loop, factors: [int or _], *, partial: bool or str = false"
    assert parameters(PRIMITIVES["reorder"].signature) == "*loops: Loop"

    def optional(limit: int | None = None, word: str = "a") -> None: ...

    assert parameters(inspect.signature(optional, eval_str=True)) == '[limit: int], word: str = "a"'


def test_every_refusal_is_among_the_declared_codes() -> None:
    assert {r.code for p in PRIMITIVES.values() for r in p.refusals} <= set(raised())


def run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(page)


def test_a_page_says_what_fails_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "A\n\n```tsched\ncompute f(\n```\n\n```tsched error=E0101\ntask t = f()\n```\n"
    first, second = run(page, tmp_path, monkeypatch).failures
    assert first.startswith("line 3: error[E0101]")
    assert second.startswith("line 7: error[E0227]")


def test_an_output_is_accepted_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "`a.tsched`:\n\n```tsched\n```\n\n```console\n$ tensorc-dsl check a.tsched\n?\n$ cat a.tsched\n```\n"
    result = run(page, tmp_path, monkeypatch)
    assert result.text == page.replace("?", "a.tsched: ok, 0 tasks")
    assert result.failures == ["line 6: $ tensorc-dsl check a.tsched\nprints\na.tsched: ok, 0 tasks\n"]
    assert run(result.text, tmp_path, monkeypatch).failures == []


def test_a_line_of_three_dots_stands_for_any_lines() -> None:
    (fence,) = fences("```console\n$ tensorc-dsl x\na\n…\nd\n```\n")
    (session,) = sessions(fence)
    assert session.fits("a\nb\nc\nd\n") and session.fits("a\nd\n")
    assert not session.fits("a\nb\n")


def test_a_diff_changes_the_file_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "```tsched error=E0101\n// a.tsched\ncompute f(X: f32[N]) -> Y: f32[N] {\n    Y[i] = X[i] +\n}\n```\n"
    right = (
        "```diff\n-    Y[i] = X[i] +\n+    Y[i] = X[i] + 1\n```\n\n```console\n$ tensorc-dsl check a.tsched\n…\n```\n"
    )
    result = run(f"{wrong}\n{right}", tmp_path, monkeypatch)
    assert not result.failures and "+ 1" in (tmp_path / "a.tsched").read_text(encoding="utf-8")
    (failure,) = run(f"{wrong}\n```diff\n-    Y[i] = X[i] +\n+    Y[i] = X[i] -\n```\n", tmp_path, monkeypatch).failures
    assert failure.startswith("line 8: error[E0101]")


@pytest.mark.parametrize(
    ("diff", "text"),
    [
        ("-b\n+B\n", "a\nB\nc\na\n"),
        (" c\n-a\n", "a\nb\nc\n"),
        ("+0\n a\n b\n@@\n-c\n+C\n+D\n", "0\na\nb\nC\nD\na\n"),
    ],
)
def test_a_diff_is_applied(diff: str, text: str) -> None:
    assert applied("a\nb\nc\na\n", diff) == text


@pytest.mark.parametrize("diff", ["-a\n", "-x\n", "-c\n@@\n-b\n"])
def test_a_diff_without_one_place_is_refused(diff: str) -> None:
    with pytest.raises(ValueError, match="places"):
        applied("a\nb\nc\na\n", diff)
