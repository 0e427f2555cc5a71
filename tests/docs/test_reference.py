"""The reference pages agree with the declarations."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate.all import FILES, PARTS, SITE_PARTS
from docs.generate.links import anchors, links
from docs.generate.pages import PAGES, filled, markers, site_markers

ROOT = Path(__file__).resolve().parent.parent.parent
ABOUT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
DOCS = [*(ROOT / name for name in ABOUT), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_generated_parts_are_fresh(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert filled(page, PARTS) == page, "run `make reference`, and read the difference"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_generated_files_are_fresh(path: Path) -> None:
    assert FILES[path]() == path.read_text(encoding="utf-8"), "run `make reference`, and read the difference"


def test_every_part_stands_on_one_page() -> None:
    found = [name for path in PAGES for name in markers(path.read_text(encoding="utf-8"))]
    assert sorted(found) == sorted(PARTS)
    listed = [name for path in PAGES for name in site_markers(path.read_text(encoding="utf-8"))]
    assert sorted(listed) == sorted(SITE_PARTS)


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in links(path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), f"{target} leads nowhere"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place.read_text(encoding="utf-8")), f"{target}: there is no such heading"
