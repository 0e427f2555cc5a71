"""Every decision has a status and a date; the list of them is generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate.decisions import DECISIONS, files, row

MOST_WORDS = 320
"""Three hundred, and the title and status."""
GOOD = "# 3. Draws\n\nStatus: accepted, 2026-11-21\n\nText.\n"


@pytest.mark.parametrize("path", files(), ids=lambda p: p.stem)
def test_a_decision_has_a_number_a_status_and_a_date(path: Path) -> None:
    _, status, _ = row(path.name, path.read_text(encoding="utf-8"))
    if status != "accepted":
        assert (DECISIONS / status.partition("(")[2].rstrip(")")).exists()


@pytest.mark.parametrize("path", files(), ids=lambda p: p.stem)
def test_a_decision_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_numbers_are_given_once() -> None:
    numbers = [path.name[:4] for path in files()]
    assert len(set(numbers)) == len(numbers)


def test_a_row_links_to_the_page() -> None:
    assert row("0003-draws.md", GOOD) == ("[3. Draws](0003-draws.md)", "accepted", "2026-11-21")
    replaced = GOOD.replace("accepted", "superseded by [9](0009-b.md)")
    assert row("0003-draws.md", replaced)[1] == "superseded by [9](0009-b.md)"


@pytest.mark.parametrize(
    ("name", "page", "why"),
    [
        ("0003-draws.md", "# 3. Draws\n\nText.\n", "begins with"),
        ("0003-draws.md", GOOD.replace("accepted", "agreed"), "begins with"),
        ("0003-draws.md", GOOD.replace("2026-11-21", "today"), "begins with"),
        ("0003-draws.md", GOOD.replace("accepted", "superseded"), "begins with"),
        ("0004-draws.md", GOOD, "decision 3"),
    ],
)
def test_a_page_that_begins_otherwise_is_an_error(name: str, page: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        row(name, page)
