"""Completion puts primitives that apply to the program at the cursor first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.faces.lsp import commands as program_after
from tensorc_dsl.faces.lsp import completion as trying
from tensorc_dsl.faces.lsp.completion import applicable, completion
from tensorc_dsl.faces.lsp.documents import Documents, uri_of
from tensorc_dsl.faces.lsp.records import Records
from tests import programs

FILE = """\
compute two(A: f32[M, N]) -> C: f32[M] {
    let T[i, j] = A[i, j] * 2.0
    C[i] = sum[j] T[i, j]
}
schedule steps for two {
    FIRST
    compute_inline(T)
    let [i, j] = C.loops
    SECOND
    parallel(i); THIRD
    FOURTH
}
task small = two(M=16, N=8) with steps
"""

PLACES = ("FIRST", "SECOND", "THIRD", "FOURTH")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, all is tried."""
    for module in (trying, program_after):
        monkeypatch.setattr(module, "SECONDS", 1e9)


def offered(folder: Path, text: str) -> dict[str, str]:
    """By name what is offered at the `|` of the text: the first letter of what it is sorted by."""
    documents = Documents()
    at = text.index("|")
    known = documents.analysis(documents.put(uri_of(folder / "f.tsched"), text.replace("|", ""), 1))
    found = completion(known, known.text.position(at), False, Records(folder / "none.sqlite"))
    return {i.label: (i.sort_text or "-")[0] for i in found.items}


def place(name: str, typed: str) -> str:
    """The file, with what is typed at a place."""
    text = FILE.replace(name, f"{typed}|")
    for other in PLACES:
        text = text.replace(other, "")
    return text


@pytest.mark.parametrize(
    ("name", "typed", "first", "last"),
    [
        ("FIRST", "", {"compute_inline", "parallel", "cache_read", "fuse"}, {"reverse_compute_inline", "persist"}),
        ("FIRST", "comp", {"compute_inline", "parallel", "reorder"}, {"reverse_compute_inline"}),
        ("SECOND", "", {"parallel", "rfactor", "decompose_reduction"}, {"compute_inline", "merge"}),
        ("SECOND", "let x = ", {"parallel", "rfactor"}, {"compute_inline"}),
        ("THIRD", "", {"unroll", "rfactor"}, {"compute_inline"}),
        ("FOURTH", "un", {"unroll", "rfactor"}, {"compute_inline"}),
    ],
)  # fmt: skip
def test_what_applies_comes_first(tmp_path: Path, name: str, typed: str, first: set[str], last: set[str]) -> None:
    found = offered(tmp_path, place(name, typed))
    assert {n for n in first if found[n] != "2"} == set()
    assert {n for n in last if found[n] != "4"} == set()
    # What needs other values than names is not judged.
    assert found["split"] == found["transform_layout"] == found["tile"] == "3"


MODULE = """\
compute two(A: f32[M, N]) -> C: f32[M] {
    let T[i, j] = A[i, j] * 2.0
    C[i] = sum[j] T[i, j]
}
module first(b: Block) when b.is_injective {
    FIRST
    compute_inline(b)
    SECOND
}
module wide(b: Block, width = 4, most: list = [1]) when b.is_reduction {
    let l = b.loops[0]
    let parts ~ sample_perfect_tile(l, parts=2)
    either way: one(0.5) {
        THIRD
        let [outer, inner] = split(l, parts)
        FOURTH
        unroll(inner)
    } or other(0.5) {
        parallel(l)
    }
    let below = 3
    unroll(b.loops[below - 3])
}
module nobody(b: Block) { FIFTH
    parallel(b.loops[0])
}
space rules for llvm { first; wide(width=2) }
task small = two(M=16, N=8) with rules
"""

MODULE_PLACES = ("FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH")


def inside(name: str, typed: str) -> str:
    text = MODULE.replace(name, f"{typed}|")
    for other in MODULE_PLACES:
        text = text.replace(other, "")
    return text


@pytest.mark.parametrize(
    ("name", "typed", "first", "last"),
    [
        ("FIRST", "", {"compute_inline", "parallel"}, {"reverse_compute_inline"}),
        ("SECOND", "pa", {"parallel", "rfactor"}, {"compute_inline", "merge"}),
        ("THIRD", "", {"rfactor"}, {"compute_inline"}),
        ("FIFTH", "", set[str](), set[str]()),
    ],
)  # fmt: skip
def test_what_applies_in_a_module_comes_first(
    tmp_path: Path, name: str, typed: str, first: set[str], last: set[str]
) -> None:
    found = offered(tmp_path, inside(name, typed))
    assert {n for n in first if found[n] != "2"} == set()
    assert {n for n in last if found[n] != "4"} == set()
    if not first:
        assert found["parallel"] == "3"


@pytest.mark.parametrize(
    ("name", "typed", "has", "lacks"),
    [
        ("THIRD", "", ["b", "l", "parts", "width", "most", "split"], ["outer", "below", "way"]),
        ("FOURTH", "", ["outer", "inner", "parts"], ["below"]),
        ("FOURTH", "let x = ", ["outer"], ["x", "below"]),
        ("FOURTH", "let x = b.", ["loops", "is_injective"], ["extent"]),
        ("FOURTH", "let x = inner.", ["extent"], ["loops"]),
        ("FOURTH", "if b.", ["loops", "is_injective"], ["extent"]),
        ("FOURTH", "for x in b.", ["loops"], ["extent"]),
        ("FOURTH", "first(", ["b=", "outer"], ["width="]),
        ("FOURTH", "wide(b, ", ["width=", "most="], ["b="]),
    ],
)
def test_what_a_module_knows_is_offered(
    tmp_path: Path, name: str, typed: str, has: list[str], lacks: list[str]
) -> None:
    found = offered(tmp_path, inside(name, typed))
    assert {*has} <= {*found} and not {*lacks} & {*found}


def test_the_condition_of_a_module_knows_its_parameters(tmp_path: Path) -> None:
    found = offered(tmp_path, "module m(b: Block, width = 4) when b.|")
    assert {"is_injective", "loops"} <= {*found} and "extent" not in found


def test_without_a_task_nothing_is_judged(tmp_path: Path) -> None:
    found = offered(tmp_path, place("SECOND", "").partition("task")[0])
    assert {found[n] for n in ("parallel", "compute_inline", "split")} == {"3"}


def test_what_takes_long_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_after, "SECONDS", -1.0)
    assert set(offered(tmp_path, place("SECOND", "")).values()) <= {"1", "3", "-"}


def test_trying_ends_in_time() -> None:
    now = iter(range(1000))
    few = applicable(programs.matmul(4, 4, 4), lambda: 4e8 * next(now))
    assert len(few) in (1, 2)
    every = applicable(programs.matmul(4, 4, 4), lambda: 0.0)
    assert every["parallel"] and not every["compute_inline"] and "split" not in every
    assert few == {n: every[n] for n in few}
