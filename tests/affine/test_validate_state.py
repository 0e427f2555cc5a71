"""A position and its value are updated together: programs in which one of them has another state are not called equal."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tests.programs import proof_fault

TEXT = """program p(X: i32[4, 6], P: i32[4]) {
    buffer V: i32[4]
    for i in 4, j in 6 {
        block P @("reducer", "argmax") {
            spatial vi in 4 = i
            reduce vj in 6 = j
            init { P[vi] = 2147483647; V[vi] = -2147483648 }
            P[vi] = i32(vj) if X[vi, vj] > V[vi] or X[vi, vj] == V[vi] and i32(vj) < P[vi] else P[vi]
            V[vi] = max(V[vi], X[vi, vj])
        }
    }
}
"""
APART = """program p(X: i32[4, 6], P: i32[4]) {
    buffer V: i32[4]
    for k in 4 { block I { spatial vi in 4 = k; P[vi] = 2147483647; V[vi] = -2147483648 } }
    for i in 4 {
        BETWEEN
        for j in 6 {
            block P @("reducer", "argmax") {
                spatial vi in 4 = i
                reduce vj in 6 = j
                P[vi] = i32(vj) if X[vi, vj] > V[vi] or X[vi, vj] == V[vi] and i32(vj) < P[vi] else P[vi]
                V[vi] = max(V[vi], X[vi, vj])
            }
        }
    }
}
"""


def fault(text: str) -> str:
    before, after = (parse_program(Source("p", t)) for t in (TEXT, text))
    return proof_fault(before, after)


@pytest.mark.parametrize(
    "text",
    [TEXT, APART.replace("BETWEEN", ""), TEXT.replace("i in 4, j in 6", "j in 6, i in 4")],
    ids=["itself", "begun before", "steps outermost"],
)
def test_one_state_is_proved(text: str) -> None:
    assert fault(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("V: i32[4]", 'V: i32[4] in "local"'), "reads `V[0]`, which nothing has written"),
        (TEXT.replace("-2147483648", "0"), "a term is missing of the reduction by `argmax`"),
        (TEXT.replace("= 2147483647", "= 0"), "E0807"),
        (
            APART.replace("BETWEEN", "block W { spatial vi in 4 = i; V[vi] = 5 }"),
            "a term is missing of the reduction by `argmax`",
        ),
        (APART.replace("BETWEEN", "block W { spatial vi in 4 = i; P[vi] = 5 }"), "E0807"),
    ],
    ids=["a value of each iteration's own", "a value from 0", "a position from 0", "another value", "another position"],
)
def test_another_state_is_not(text: str, why: str) -> None:
    assert why in fault(text)
