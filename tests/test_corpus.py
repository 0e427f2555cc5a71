"""A corpus is run in parts, each case in one of them, and cases that name what a change touches are run at once."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from tests import corpus


def chosen(monkeypatch: pytest.MonkeyPatch, state: int, touched: re.Pattern[str] | None = None) -> set[int]:
    monkeypatch.setattr(corpus, "_state", lambda: state)
    monkeypatch.setattr(corpus, "_touched", lambda: touched)
    return {n for n in range(400) if corpus.in_sample(SimpleNamespace(nodeid=f"t[{n}]", callspec=f"split({n})"))}  # type: ignore[arg-type]


def test_each_case_is_in_one_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [chosen(monkeypatch, state) for state in range(corpus.SHARE)]
    assert set.union(*parts) == set(range(400)) and sum(map(len, parts)) == 400
    assert all(50 < len(p) < 150 for p in parts)


def test_what_a_change_touches_is_run_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 0, re.compile(r"\bsplit\b")) == set(range(400))
    assert chosen(monkeypatch, 0, re.compile(r"\bspli\b")) == chosen(monkeypatch, 0)


def test_the_state_and_the_names_are_found() -> None:
    assert corpus._state() == corpus._state() != 0
    touched = corpus._touched()
    assert touched is None or touched.pattern
