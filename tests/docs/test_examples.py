"""Every example of the documentation runs, and its output is that on the page. `tests/explain` runs the pages of errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tensorc_dsl.tuning.insight import study
from tensorc_dsl.tuning.insight import study as structures
from tests.docs.pages import C_COMPILER, Run, fences

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


RUN = [p for p in PAGES if p.parent.name != "errors"]


@pytest.fixture(autouse=True)
def few_points_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page shows what a study of records finds, only that it is printed: `tests/insight` has the values. Most of the time
    of a study goes into expansions of these points.
    """
    monkeypatch.setattr(structures, "DRAWN", 8)
    monkeypatch.setattr(structures, "MOST", 24)
    monkeypatch.setattr(study, "PRIOR", 256)


@pytest.mark.parametrize("path", RUN, ids=lambda p: p.relative_to(ROOT).as_posix())
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


def test_fences_are_closed_and_known() -> None:
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        marks = [line for line in page.splitlines() if line.startswith("```")]
        assert len(marks) == 2 * len(fences(page)), (
            f"{path.name}: a fence is not closed, or its first line is not understood"
        )
