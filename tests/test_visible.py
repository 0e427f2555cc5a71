"""Text on a terminal: invisible characters are spelled out, and underlines stand below the right characters."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from tensorc_dsl.base.diagnostic import EXCERPT, Diagnostic, TschedError, help_note, render
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.base.visible import columns, visible, visible_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with\ttabs\nand lines", "plain, with\ttabs\nand lines"),
        ("é ß 中 한 😀 e\u0301 \u00a0 [red]", "é ß 中 한 😀 e\u0301 \u00a0 [red]"),
        ("\x1b[31m", r"\u{1B}[31m"),
        ("\x00\x07\x08\x0b\x0c\r\x7f", r"\u{0}\u{7}\u{8}\u{B}\u{C}\u{D}\u{7F}"),
        ("\x80\x9b1m\x9d0;t\x9c", r"\u{80}\u{9B}1m\u{9D}0;t\u{9C}"),
        ("\u202a\u202e\u2066\u2069\u200e\u061c", r"\u{202A}\u{202E}\u{2066}\u{2069}\u{200E}\u{61C}"),
        ("\u200b\u200d\ufeff\u00ad\u2028\u2029", r"\u{200B}\u{200D}\u{FEFF}\u{AD}\u{2028}\u{2029}"),
        ("\U000e0041\udcff", r"\u{E0041}\u{DCFF}"),
    ],
)
def test_what_shows_nothing_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_a_line_has_no_end_and_no_tab() -> None:
    assert visible_line("a\nb\tc\x1b") == r"a\u{A}b\u{9}c\u{1B}"


LETTERS = [
    *"abc xyz",
    "é",
    "中",
    "한",
    "😀",
    "ｗ",
    "e\u0301",
    "\u0301",
    "\x1b",
    "\u202e",
    "\x9b",
    "\u200b",
    "\u1100\u1161",
]


@pytest.mark.parametrize("seed", range(200))
def test_an_underline_stands_below_what_it_means(seed: int) -> None:
    draw = random.Random(seed)
    before, marked, after = ("".join(draw.choices(LETTERS, k=draw.randrange(1, 9))) for _ in range(3))
    source = Source("x.tsched", f"first\n{before}{marked}{after}\nlast")
    start = len("first\n" + before)
    _, _, _, line, under = render(
        Diagnostic("E0000", "m", Span(source, start, start + len(marked)), "label")
    ).splitlines()
    assert line == f"2 | {visible(before + marked + after)}"
    lead, marks = under.removeprefix("  | ").removesuffix(" label").split("^", 1)
    # Rich has tables of its own.
    assert len(lead) == cell_len(visible(before))
    assert len("^" + marks) == max(1, cell_len(visible(marked)))


def test_tabs_before_an_underline_stay_tabs() -> None:
    source = Source("x", "\tab\tc\td")
    under = render(Diagnostic("E0000", "m", Span(source, 4, 5))).splitlines()[-1]
    assert under == "  | \t  \t^"
    under = render(Diagnostic("E0000", "m", Span(source, 1, 5))).splitlines()[-1]
    assert under == f"  | \t{'^' * 9}"  # from column 8 to 17: the tab ends at 16


def test_columns_of_tabs() -> None:
    assert [columns("\t", n) for n in (0, 1, 7, 8)] == [8, 7, 1, 8]
    assert columns("a中\tb") == 9


@pytest.mark.parametrize("start", [0, 3, 1000, 99_990])
def test_a_long_line_is_cut_around_what_is_wrong(start: int) -> None:
    source = Source("x", "a" * start + "WRONG" + "b" * (100_000 - start))
    text = render(Diagnostic("E0000", "m", Span(source, start, start + 5)))
    line, under = text.splitlines()[-2:]
    assert len(line) <= EXCERPT + 10
    at = under.index("^")
    assert line[at : at + 5] == "WRONG"
    assert f" --> x:1:{start + 1}" in text


def test_nothing_begins_a_line_that_could_be_a_finding() -> None:
    forged = "x\nerror[E9999]: forged"
    source = Source(forged, "text")
    d = Diagnostic("E0000", forged, Span(source, 0, 4), forged, (help_note(forged),))
    assert [line for line in render(d).splitlines() if line.startswith("error")] == ["error[E0000]: x"]


def test_an_exception_says_it_without_acting() -> None:
    assert str(TschedError(Diagnostic("E0000", "\x1b[2J", None))) == r"E0000: \u{1B}[2J"
