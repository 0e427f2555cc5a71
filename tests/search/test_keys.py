"""Programs that count as one candidate: those that become the same loops."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.search.space import candidate_key

PROGRAM = """\
program f(A: f32[8, 8], C: f32[8, 8]) {
    HEAD {
        block C { spatial vi in 8 = FIRST; spatial vj in 8 = SECOND; C[vi, vj] = A[vj, vi] }
    TAIL
}
"""

OPEN = """\
program f(A: f32[loop0], C: f32[loop0]) where loop0 in 1..8 {
    for i in loop0 { block C { spatial v in loop0 = i; C[v] = A[INDEX] } }
}
"""


def key(head: str, first: str, second: str) -> str:
    facts = {"HEAD": head, "FIRST": first, "SECOND": second, "TAIL": "}" * (head.count("{") + 1)}
    text = PROGRAM
    for name, value in facts.items():
        text = text.replace(name, value)
    return candidate_key(parse_program(Source("f", text)), Target())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("for i in 8, j in 8", "i", "j"), ("for p in 8, q in 8", "p", "q")),
        (("for i in 8, j in 8", "i", "j"), ("for j in 8, i in 8", "j", "i")),
        (("parallel for i in 8 { for j in 8", "i", "j"), ("parallel for A_ in 8 { for f in 8", "A_", "f")),
        (
            ("parallel for i in 8 { parallel for j in 8", "i", "j"),
            ("parallel for a in 8 { parallel for b in 8", "a", "b"),
        ),
        (("for i in 8, j in 8, o in 1", "i", "j"), ("for x in 8, y in 8", "x", "y")),
    ],
)  # fmt: skip
def test_names_of_loops_tell_nothing(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert key(*one) == key(*other)


@pytest.mark.parametrize(
    "other",
    [
        ("for i in 8, j in 8", "j", "i"),
        ("for i in 8 { vectorized for j in 8", "i", "j"),
        ("parallel for i in 8 { for j in 8", "i", "j"),
    ],
)
def test_what_loops_do_tells_kernels_apart(other: tuple[str, str, str]) -> None:
    assert key("for i in 8, j in 8", "i", "j") != key(*other)


def test_a_loop_is_not_mistaken_for_an_open_size() -> None:
    texts = (OPEN.replace("INDEX", x) for x in ("v", "loop0 - 1"))
    assert len({candidate_key(parse_program(Source("f", text)), Target()) for text in texts}) == 2
