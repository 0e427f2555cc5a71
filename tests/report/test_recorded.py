"""Tables of records fit the terminal."""

from __future__ import annotations

import os

import pytest

from tensorc_dsl.faces.report import recorded, terminal

HEAD = ("task", "machine", "best")
ROWS = [("small", "llvm:znver4:512:1:af92a199:t1", "4.47 µs"), ("a_long_name", "llvm:znver4:512:1:af92a199:t1", "")]


@pytest.mark.parametrize("columns", [None, 200, 51, 50, 30])
def test_a_table_is_as_wide_as_the_terminal_at_most(columns: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: columns is not None)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns or 0, 24)))
    text = recorded.table(HEAD, ROWS)
    wide = """\
task         machine                        best
small        llvm:znver4:512:1:af92a199:t1  4.47 µs
a_long_name  llvm:znver4:512:1:af92a199:t1"""
    narrow = """\
task     small
machine  llvm:znver4:512:1:af92a199:t1
best     4.47 µs

task     a_long_name
machine  llvm:znver4:512:1:af92a199:t1"""
    assert text == (narrow if columns is not None and columns < 51 else wide)
