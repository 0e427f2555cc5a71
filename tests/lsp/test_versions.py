"""What is known of a text after some edits is what is known of it when it is opened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.documents import Document, Documents, uri_of
from tensorc_dsl.faces.lsp.parts import Pieces, read_part
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.syntax.parse import parse_items
from tests.docs.pages import example

ROOT = Path(__file__).resolve().parents[2]
FILES = [*sorted((ROOT / "examples").glob("*.tsched")), *sorted((ROOT / "stdlib/cpu").glob("*.tsched"))[:4]]
BAD = {
    page.with_suffix(".tsched"): wrong.text
    for page in sorted((ROOT / "docs/errors").glob("[EW]*.md"))[::9]
    if (wrong := example(page.read_text())).language == "tsched"
}
"""Examples of pages about errors, by the path that such a file would have."""
TEXTS = {**{f: f.read_text() for f in FILES}, **BAD}


def known(analysis: Analysis) -> list[tuple[str, str, int, int]]:
    """The findings with their places, and the names with theirs."""
    found = [
        (d.code, d.message + repr(d.notes), p.start if p else 0, p.end if p else 0) for d, p in analysis.findings()
    ]
    names = [
        (f.reference.name, str(analysis.places(f.definition)), f.start, f.end)
        for i in analysis.items
        for f in analysis.found_in(i)
    ]
    return sorted(found) + sorted(names)


def fresh(path: Path, text: str) -> Analysis:
    document = Document(uri_of(path), path, text)
    return Documents().analysis(document)


def edited(text: str, rng: random.Random) -> str:
    """The text with a line left out, said twice, cut short or moved."""
    lines = text.split("\n")
    n, m = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            del lines[n]
        case 1:
            lines.insert(m, lines[n])
        case 2:
            lines[n] = lines[n][: len(lines[n]) // 2]
        case 3:
            lines[n], lines[m] = lines[m], lines[n]
        case _:
            lines.insert(n, "")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(3))
def test_edits_lead_to_what_a_fresh_look_sees(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "edited.tsched"
    whole = "\n".join(TEXTS[f] for f in rng.sample([*FILES[:7], *BAD], 3))
    documents = Documents()
    document = documents.put(uri_of(path), whole, 0)
    documents.analysis(document)
    for version in range(1, 7):
        documents.put(document.uri, edited(document.text if rng.random() < 0.7 else whole, rng), version)
        assert known(documents.analysis(document)) == known(fresh(path, document.text))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("use std.ops.{matmul}\nSCHEDULE", "use std.ops.{matmul}\nSCHEDULEconst C = 3\n"),
        ("use std.ops.{matmul}\nSCHEDULEconst C = 3\n", "use std.ops.{matmul}\nSCHEDULE"),
        ("use std.ops.{matmul}\nSCHEDULE", "use std.ops.{matmul}\nuse std.intrinsics\nSCHEDULE"),
        ("use std.intrinsics\n", "use std.intrinsics\nintrinsic vnni_dot_16x4 desc (A: f32[4]) { A[i] = A[i] }\n"),
        ("use std.ops.{matmul}\n\nSCHEDULE", "compute matmul(A: f32[M]) -> D: f32[M] { D[i] = A[i] }\nSCHEDULE"),
        ("module a(b: Block) { c(b) }\nmodule c(b: Block) { }\n", "module a(b: Block) { c(b) }\n"),
        (
            "module a(b: Block) { c(b) }\nmodule c(b: Block) { }\n",
            "module a(b: Block) { c(b) }\nmodule c(d: Loop) { }\n",
        ),
        ("SCHEDULE", "SCHEDULEconst matmu = 1\ncompute matmull(A: f32[M]) -> D: f32[M] { D[i] = A[i] }\n"),
    ],
)
def test_what_is_not_in_the_text_of_an_item_counts(before: str, after: str, tmp_path: Path) -> None:
    schedule = "schedule s for matmul {\n    parallel(root.blocks[0].loops[0])\n}\n"
    path = tmp_path / "edited.tsched"
    documents = Documents()
    for version, text in enumerate((before, after, before)):
        document = documents.put(uri_of(path), text.replace("SCHEDULE", schedule), version)
        assert known(documents.analysis(document)) == known(fresh(path, document.text))


@pytest.mark.corpus
@pytest.mark.parametrize("file", TEXTS, ids=lambda f: f.name)
def test_the_findings_are_those_of_check(file: Path) -> None:
    documents = Documents()
    source = Source(str(file), TEXTS[file])
    found = documents.analysis(documents.put(uri_of(file), source.text, 1)).findings()
    told = [(d.code, d.message) for d, place in found if place is None or place.path is None]
    checked = load_file(source, Resolver(file))
    wanted = [(d.code, d.message) for d in checked.diagnostics if d.span is None or d.span.source is source]
    torn = bool(parse_items(source).diagnostics)
    # Of a file that does not parse, `check` tells only why.
    assert set(wanted) <= set(told) if torn else sorted(told) == sorted(wanted)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_parts_are_the_file(file: Path) -> None:
    text = file.read_text()
    pieces = Pieces().read(Source("x", text))
    assert "".join(p.part.text for p in pieces) == text
    assert tuple(i for p in pieces for i in p.items) == parse_items(Source("x", text)).file.items


def test_an_item_across_what_looks_like_items_is_one() -> None:
    text = "compute f(A: f32[M]) -> B: f32[M] {\nlet task = 1.0\nB[i] = A[i] +\ntask\n}\nconst x = 1\n"
    pieces = Pieces().read(Source("x", text))
    assert [len(p.findings) for p in pieces] == [0, 0]
    assert "".join(p.part.text for p in pieces) == text


@pytest.mark.parametrize(
    ("torn", "whole"),
    [
        ("    reorder(i,\n    unroll(j)\n", "    unroll(j)\n"),
        ("    let x = = 3\n    unroll(j)\n", "    unroll(j)\n"),
        ("    unroll(j)\n    split(i\n", "    unroll(j)\n"),
        ("    unroll(j).\n", ""),
        ("    let x = [i, [j\n    parallel(i)\n", "    parallel(i)\n"),
    ],
)
def test_lines_that_are_not_finished_are_left_out(torn: str, whole: str) -> None:
    head, end = "schedule s for f {\n    let [i, j] = B.loops\n", "}\n"
    piece = read_part("x", head + torn + end)
    assert piece.findings
    assert piece.items == parse_items(Source("x", head + whole + end)).file.items
