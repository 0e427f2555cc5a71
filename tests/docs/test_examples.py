"""Every example of the documentation runs, and its output is that on the page. `tests/explain` runs the pages of errors."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import C_COMPILER, Run, fences

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


RUN = [p for p in PAGES if p.parent.name != "errors"]

SEARCHES = re.compile(r"^\$ tensorc-dsl tune|\.(tune|search)\(", re.MULTILINE)


def pages(searching: bool) -> pytest.MarkDecorator:
    """The pages with a search or without one. The front page is like one without."""
    found = [p for p in RUN if (p != PAGES[0] and bool(SEARCHES.search(p.read_text("utf-8")))) == searching]
    return pytest.mark.parametrize("path", found, ids=lambda p: p.relative_to(ROOT).as_posix())


@pytest.mark.corpus
@pages(searching=False)
def test_page(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: bool) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    page = path.read_text(encoding="utf-8")
    if shutil.which(C_COMPILER) is None and any(f.language == "c" for f in fences(page)):
        pytest.skip("there is no C compiler")
    run = Run(page)
    if accept and run.text != page:
        path.write_text(run.text, encoding="utf-8")
        return
    assert not run.failures, "\n\n".join(run.failures)


@pytest.mark.corpus
@pytest.mark.usefixtures("few_points_are_looked_at")
@pages(searching=True)
def test_page_with_searches(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: bool) -> None:
    test_page(path, tmp_path, monkeypatch, accept)


def test_fences_are_closed_and_known() -> None:
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        marks = [line for line in page.splitlines() if line.startswith("```")]
        assert len(marks) == 2 * len(fences(page)), (
            f"{path.name}: a fence is not closed, or its first line is not understood"
        )
