"""The reference pages agree with the declarations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate.all import FILES, PARTS, SITE_PARTS
from docs.generate.links import anchors, links
from docs.generate.order import Row, kept_bits, row
from docs.generate.pages import FOLDER, PAGES, filled, markers, site_markers
from tensorc_dsl.schedule.primitives import PRIMITIVES

ROOT = Path(__file__).resolve().parent.parent.parent
ABOUT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
STALE = "run `make reference`, and read the difference"
DOCS = [*(ROOT / name for name in ABOUT), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_generated_parts_are_fresh(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    parts = {**PARTS, "kept-bits": lambda: kept_bits(said)}  # a test below proves what the page says
    assert filled(page, parts) == page, STALE


def said(step: str) -> Row | None:
    """What the page of the primitives says of the bits of a step."""
    page = (FOLDER / "primitives.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| (`{step}`) \| (\d+ of \d+) \| (.*) \|$", page, re.MULTILINE)
    return found and (found[1], found[2], found[3].replace(r"\|", "|"))


@pytest.mark.corpus
@pytest.mark.parametrize("step", sorted(PRIMITIVES))
def test_a_step_keeps_the_bits_in_as_many_cases_as_its_page_says(step: str) -> None:
    assert row(step) == said(step), STALE


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_generated_files_are_fresh(path: Path) -> None:
    assert FILES[path]() == path.read_text(encoding="utf-8"), STALE


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
