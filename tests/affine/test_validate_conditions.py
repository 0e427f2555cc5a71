"""Validation of choices whose condition is partly of loops and partly of data."""

from __future__ import annotations

import pytest

from tensorc_dsl.proof.equivalence.validate import Valid
from tests.affine.test_validate import compared

SHIFTED = """
program shifted(X: f32[9], C: f32[9], Y: f32[9]) {
    buffer P: f32[9]
    for i in 9 { block P { spatial vi in 9 = i
        P[vi] = exp(X[vi]) } }
    for i_1 in 9 { block Y { spatial vi in 9 = i_1
        Y[vi] = P[vi - 1] if vi >= 1 and C[vi] > 0.0 else 0.0 } }
}
"""

INLINED = """
program shifted(X: f32[9], C: f32[9], Y: f32[9]) {
    for i in 9 { block Y { spatial vi in 9 = i
        Y[vi] = exp(X[vi - 1]) if vi >= 1 and C[vi] > 0.0 else 0.0 } }
}
"""

EITHER = {
    "and": "if vi >= 1 and C[vi] > 0.0 else 0.0",
    "and, data first": "if C[vi] > 0.0 and vi >= 1 else 0.0",
    "and, three": "if vi >= 1 and (C[vi] > 0.0 and vi < 8) else 0.0",
}

OR = {
    "or": "0.0 if vi < 1 or C[vi] <= 0.0 else P[vi - 1]",
    "or, data first": "0.0 if C[vi] <= 0.0 or vi < 1 else P[vi - 1]",
}


@pytest.mark.parametrize("condition", EITHER.values(), ids=EITHER)
def test_a_read_under_both_conditions_stays_inside(condition: str) -> None:
    original, inlined = (t.replace(EITHER["and"], condition) for t in (SHIFTED, INLINED))
    assert compared(original, inlined) == Valid()
    assert compared(original, inlined.replace("vi >= 1", "vi >= 2")) != Valid()
    assert compared(original, inlined.replace("> 0.0", ">= 0.0")) != Valid()


@pytest.mark.parametrize("value", OR.values(), ids=OR)
def test_a_read_under_neither_condition_stays_inside(value: str) -> None:
    original = SHIFTED.replace(f"P[vi - 1] {EITHER['and']}", value)
    inlined = INLINED.replace(f"exp(X[vi - 1]) {EITHER['and']}", value.replace("P[vi - 1]", "exp(X[vi - 1])"))
    assert compared(original, inlined) == Valid()
    assert compared(original, inlined.replace("vi < 1", "vi < 2")) != Valid()
