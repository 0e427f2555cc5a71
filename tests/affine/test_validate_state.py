"""A position and its value are updated together: programs in which one of them has another state are not called equal."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import run
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
LOCAL = TEXT.replace("V: i32[4]", 'V: i32[4] in "local"')
READ_BESIDE = LOCAL.replace("{\n    buffer V", "{\n    buffer T: i32[4, 6]\n    buffer V", 1).replace(
    "X[vi, vj])\n        }\n",
    "X[vi, vj])\n        }\n        block T { spatial vi in 4 = i; spatial vj in 6 = j; T[vi, vj] = V[vi] }\n",
)
"""A private buffer that another block reads is new in each step; one of the reduction alone lives through all steps."""


def fault(text: str) -> str:
    before, after = (parse_program(Source("p", t)) for t in (TEXT, text))
    return proof_fault(before, after)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        APART.replace("BETWEEN", ""),
        TEXT.replace("i in 4, j in 6", "j in 6, i in 4"),
        LOCAL,
        LOCAL.replace("i in 4, j in 6", "j in 6, i in 4"),
        LOCAL.replace("i in 4, j in 6", "jo in 2, i in 4, ji in 3").replace("= j\n", "= jo * 3 + ji\n"),
    ],
    ids=["itself", "begun before", "steps outermost", "private", "private, steps outermost", "private, in pieces"],
)
def test_one_state_is_proved(text: str) -> None:
    assert fault(text) == ""
    p = parse_program(Source("p", text))
    x = np.random.default_rng(0).integers(-3, 3, (4, 6)).astype(np.int32)
    for made in (interpret(p, {"X": x}), run(p, {"X": x})):
        assert made["P"].tolist() == x.argmax(1).tolist()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (READ_BESIDE, "reads `V[0]`, which nothing has written"),
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
