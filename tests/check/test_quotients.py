"""Comments that read like the rest of a value."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file


def told(line: str) -> list[str]:
    text = f"compute f(A: i32[N]) -> Y: i32[N] {{\n    {line}\n}}\n"
    found = load_file(Source("f.tsched", text)).diagnostics
    return [d.message for d in found if d.code == "W0205"]


@pytest.mark.parametrize(
    ("line", "comment"),
    [
        ("Y[i] = A[i] // 2", "// 2"),
        ("Y[i] = A[i] //2 + 1", "//2 + 1"),
        ("Y[i] = (A[i] + 1) // (4 * 2)", "// (4 * 2)"),
        ("Y[i] = A[i] // A[0]", "// A[0]"),
        ("Y[i] = A[i] * 3//2", "//2"),
    ],
)
def test_an_expression_behind_a_value_is_told(line: str, comment: str) -> None:
    assert told(line) == [f"`{comment}` is a comment, not part of the value"]


@pytest.mark.parametrize(
    "line",
    [
        "Y[i] = A[i] // halves",
        "Y[i] = A[i] // 2 of them",
        "Y[i] = A[i] // see A[0], 2",
        "Y[i] = // 2\n        A[i]",
        "// Y[i] = A[i] // 2\n    Y[i] = A[i]",
        'Y[i] @("note", "a // 2") = A[i]',
        "/// 2\n    Y[i] = A[i]",
    ],
)
def test_words_are_comments(line: str) -> None:
    assert told(line) == []
