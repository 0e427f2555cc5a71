"""A corpus is run in parts, each case in one of them, and cases that a change touches are run at once."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests import corpus
from tests.corpus import SHARE, Touched, part, touched_by

NOTHING = Touched(frozenset(), None)


def item(name: str, *, marked: bool = True, of: str = "") -> Any:
    """A test of that name; its mark may name a corpus."""
    mark = pytest.mark.corpus(*filter(None, [of])).mark if marked else None
    return SimpleNamespace(nodeid=name, get_closest_marker=lambda _: mark)


def chosen(monkeypatch: pytest.MonkeyPatch, items: list[Any], state: int, touched: Touched = NOTHING) -> list[str]:
    monkeypatch.setattr(corpus, "_state", lambda: state)
    monkeypatch.setattr(corpus, "_touched", lambda: touched)
    return [i.nodeid for i in corpus.sampled(items)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 399])
def test_each_case_is_in_one_of_the_parts_and_no_part_is_empty(count: int) -> None:
    names = {f"t[{n}]" for n in range(count)}
    parts = [part(names, state) for state in range(SHARE)]
    assert set.union(*parts) == names and all(-(-count // SHARE) >= len(p) >= max(1, count // SHARE) for p in parts)
    assert count < SHARE or sum(map(len, parts)) == count


def test_a_part_has_values_of_each_parameter() -> None:
    chosen = part((f"t[{a}-{b}]" for a in range(12) for b in range(4)), 1)
    assert {name[-2] for name in chosen} == set("0123") and len({name[2:-3] for name in chosen}) > 5


def test_tests_that_are_no_cases_are_run_and_the_order_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [item(f"tests/a.py::t[{n}]") for n in range(40)]
    others = [item("tests/b.py::one"), *(item(f"tests/b.py::o[{n}]", marked=False) for n in range(9))]
    found = chosen(monkeypatch, [*cases, *others], 3)
    assert found[-10:] == [i.nodeid for i in others] and len(found) == 10 + 40 // SHARE
    assert found == sorted(found, key=[i.nodeid for i in (*cases, *others)].index)


def test_what_a_change_touches_is_run_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [item(f"tests/a.py::t[split({n})]") for n in range(40)]
    few = chosen(monkeypatch, cases, 0)
    assert len(few) == 40 // SHARE
    assert len(chosen(monkeypatch, cases, 0, Touched(frozenset(), re.compile(r"\bsplit\b")))) == 40
    assert chosen(monkeypatch, cases, 0, Touched(frozenset(), re.compile(r"\bspli\b"))) == few
    assert len(chosen(monkeypatch, cases, 0, Touched(frozenset({"tests/a.py"}), None))) == 40
    assert chosen(monkeypatch, cases, 0, Touched(frozenset({"tests/b.py"}), None)) == few


def test_a_change_touches_its_tests_and_what_has_its_names() -> None:
    pages = ["docs/a.md", "tests/primitives/split.md"]
    touched = touched_by(["tests/a.py", *pages, "stdlib/ops/gemm.tsched", "tensorc_dsl/base/source.py"])
    assert touched.files == {"tests/a.py"} and touched.modules == {"tensorc_dsl.base.source"}
    assert touched.names is not None and touched.names.pattern == r"\b(docs/a\.md|gemm|split)\b"
    folders = ("tests", "stdlib", "tensorc_dsl/ir", "docs")
    assert (
        touched_by([f"{folder}/{n}{end}" for folder in folders for n in range(40) for end in (".py", ".md")]) == NOTHING
    )


def test_the_marked_tests_of_a_file_are_one_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [item(f"tests/{file}.py::{t}") for file in "ab" for t in ("s", "t[0]", "t[1]", "t[2]", *"uvwx")]
    once = [chosen(monkeypatch, cases, state) for state in range(SHARE)]
    assert {len({name[:10] for name in names}) for names in once} == {2}
    assert sorted(name for names in once for name in names) == sorted(i.nodeid for i in cases)


def test_a_name_joins_tests_of_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [item(f"tests/{file}.py::{t}", of="endings") for file in "ab" for t in ("t[0]", "t[1]", "u[0]", "v")]
    once = [chosen(monkeypatch, cases, state) for state in range(SHARE)]
    assert sorted(map(len, once)) == [1] * SHARE and {name for (name,) in once} == {i.nodeid for i in cases}


def test_a_module_touches_the_tests_of_its_name_and_those_of_few_that_import_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [item(f"tests/{file}.py::t{n}") for file in ("test_corpus", "test_alone") for n in range(40)]
    few = chosen(monkeypatch, cases, 0)
    for module in ("tensorc_dsl.ir.alone", "tensorc_dsl.faces.api.schedules"):
        all_of_one = chosen(monkeypatch, cases, 0, Touched(frozenset(), None, frozenset({module})))
        assert {*few, *(i.nodeid for i in cases if "alone" in i.nodeid)} == {*all_of_one}
    everywhere = {f.relative_to(corpus.ROOT).as_posix() for f in (corpus.ROOT / "tests" / "cli").glob("test_*.py")}
    assert corpus.importing(everywhere, ["tensorc_dsl.faces.cli.main"]) == set()


def test_the_state_and_the_change_are_found() -> None:
    assert corpus._state() == corpus._state() != 0
    assert isinstance(corpus._touched(), Touched)
