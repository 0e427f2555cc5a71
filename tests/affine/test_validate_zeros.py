"""Terms that are 0 times an element of an input are none only if that input is finite."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, validate
from tensorc_dsl.reference.inputs import Special, special_inputs

FINITE = '@("assume.F", "finite")'


def _rows(said: str, guard: str = "", factor: str = "F[k]") -> Program:
    text = f"""
program rows(X: f32[8], F: f32[3], Y: f32[8]) {said} {{
    buffer P: f32[10]
    for h in 10 {{ block P {{ spatial v in 10 = h
        P[v] = X[v - 1] if 1 <= v and v < 9 else 0.0 }} }}
    for i in 8 {{ block Z {{ spatial v in 8 = i
        Y[v] = 0.0 }} }}
    for j in 8, s in 3 {{ block Y {{ spatial v in 8 = j
        reduce k in 3 = s
        {guard}
        Y[v] = Y[v] + P[v + k] * {factor} }} }}
}}
"""
    return parse_program(Source("test", text))


INSIDE = "where j + s >= 1\n        where j + s < 9"


def test_zero_times_a_finite_number_is_no_term() -> None:
    assert isinstance(validate(_rows(FINITE), _rows(FINITE, INSIDE)), Valid)
    assert isinstance(validate(_rows(FINITE, INSIDE), _rows(FINITE)), Valid)


@pytest.mark.parametrize("said", ["", '@("assume.X", "finite")', '@("assume.F", "positive")'])
def test_it_may_be_one_where_the_factor_may_be_infinite(said: str) -> None:
    assert not isinstance(validate(_rows(said), _rows(said, INSIDE)), Valid)


def test_a_scheduled_program_assumes_nothing_by_itself() -> None:
    assert not isinstance(validate(_rows(""), _rows(FINITE, INSIDE)), Valid)


def test_a_factor_that_is_computed_may_be_infinite() -> None:
    first, second = (_rows(FINITE, guard, "(F[k] * F[k])") for guard in ("", INSIDE))
    assert isinstance(validate(first, second), Invalid | Unproved)


@pytest.mark.parametrize("guard", ["where j + s >= 2", "where j + s < 8", "where s >= 1"])
def test_terms_that_are_not_zero_are_missed(guard: str) -> None:
    assert isinstance(validate(_rows(FINITE), _rows(FINITE, guard)), Invalid)


def test_special_values_of_what_is_finite_are_finite() -> None:
    drawn = [special_inputs(_rows(FINITE), seed, 0.9, frozenset(Special)) for seed in range(8)]
    assert all(np.isfinite(found["F"]).all() for found in drawn)
    assert not all(np.isfinite(found["X"]).all() for found in drawn)
    assert any((np.abs(found["F"]) > 1e30).any() for found in drawn)
