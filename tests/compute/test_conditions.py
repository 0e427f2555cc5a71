"""`and` and `or` look at their second condition only where the first one leaves it open, so the first guards its loads."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import blocks
from tests.compute.native import everywhere
from tests.compute.texts import build, codes, errors

PEAKS = """
compute f(X: f32[N]) -> Y: i32[N] {
    Y[i] = 1 if 0 < i < N - 1 and X[i - 1] < X[i] and X[i] > X[i + 1] else 0
}
"""


def peaks(x: Array) -> Array:
    out = np.zeros(len(x), np.int32)
    if len(x) > 2:
        out[1:-1] = (x[:-2] < x[1:-1]) & (x[1:-1] > x[2:])
    return out


@pytest.mark.parametrize("n", [0, 1, 2, 3, 16, 37])
def test_and_guards_what_follows(n: int) -> None:
    x = np.random.default_rng(n).integers(-3, 4, n).astype(np.float32)
    np.testing.assert_array_equal(everywhere(build(PEAKS, N=n), {"X": x})["Y"], peaks(x))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 33])
def test_or_guards_what_follows(n: int) -> None:
    text = "compute f(X: f32[N]) -> Y: bool[N] { Y[i] = i == 0 or i == N - 1 or X[i - 1] + X[i + 1] < X[i] }"
    x = np.random.default_rng(n).integers(-3, 4, n).astype(np.float32)
    want = np.ones(n, np.bool_)
    if n > 2:
        want[1:-1] = x[:-2] + x[2:] < x[1:-1]
    np.testing.assert_array_equal(everywhere(build(text, N=n), {"X": x})["Y"], want)


def test_what_a_condition_chooses_is_guarded_by_all_of_it() -> None:
    text = """
compute f(X: f32[N]) -> Y: f32[N] {
    Y[i] = X[i - 1] if i >= 1 and X[i - 1] > X[i] else (X[i + 1] if not (i == N - 1 or X[i + 1] < 0.0) else X[i])
}
"""
    x = np.random.default_rng(3).standard_normal(29).astype(np.float32)
    want = x.copy()
    for i in range(29):
        if i >= 1 and x[i - 1] > x[i]:
            want[i] = x[i - 1]
        elif i < 28 and x[i + 1] >= 0:
            want[i] = x[i + 1]
    np.testing.assert_array_equal(everywhere(build(text, N=29), {"X": x})["Y"], want)


def test_conditions_whose_loads_are_inside_stay_as_they_are() -> None:
    text = "compute f(X: f32[N]) -> Y: i32[N] { Y[i] = 1 if 0 < i and X[i] > 0.0 else 0 }"
    (block,) = blocks(build(text, N=5))
    (store,) = block.body
    assert str(store.value).count("Select") == 1


def test_a_condition_guards_what_stands_behind_it_alone() -> None:
    behind = "compute f(X: f32[N]) -> Y: bool[N] { Y[i] = X[i - 1] > 0.0 and i >= 1 }"
    assert codes(behind, N=4) == ["E0411"]
    other = "compute f(X: f32[N]) -> Y: bool[N] { Y[i] = i >= 1 or X[i - 1] > 0.0 }"
    assert "-1 when i = 0" in errors(other, N=4)[0]
    data = "compute f(X: f32[N]) -> Y: bool[N] { Y[i] = X[i] > 0.0 and X[i - 1] > 0.0 }"
    assert codes(data, N=4) == ["E0411"]
