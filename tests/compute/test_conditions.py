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


# --- reductions inside of conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 3, 4, 9])
def test_a_condition_guards_the_reductions_that_it_chooses(m: int) -> None:
    text = """
compute f(X: f32[M, N]) -> Y: f32[M], Z: f32[M] {
    Y[i in M] = 0.5 if i < 3 else (max[k] (X[i - 3, k] + (sum[j in M] X[i - 2, k] * X[j, k])))
    Z[i in M] = 1.0 if i > 2 and i < M - 2 and (sum[k] X[i - 3, k]) > (sum[k] X[i + 2, k]) else 0.0
}
"""
    x = np.random.default_rng(m).integers(-3, 4, (m, 5)).astype(np.float32)
    y, z = np.full(m, 0.5, np.float32), np.zeros(m, np.float32)
    for i in range(3, m):
        y[i] = (x[i - 3] + x[i - 2] * x.sum(0)).max()
        z[i] = float(i < m - 2 and x[i - 3].sum() > x[(i + 2) % m].sum())
    found = everywhere(build(text, M=m, N=5), {"X": x})
    np.testing.assert_array_equal(found["Y"], y)
    np.testing.assert_array_equal(found["Z"], z)


def test_a_reduction_that_two_branches_choose_is_guarded_by_both() -> None:
    text = """
compute f(X: f32[M, N]) -> Y: f32[3, M, N] {
    Y[t, i, j] = scan[t]
        init X[i, j]
        step (sum[k in N] Y[t - 1, i - 3, k]) if i >= 5
            else (sum[k in N] Y[t - 1, i - 3, k]) * 2.0 if i == 4 else f32(argmax[k in N] Y[t - 1, i - 1, k]) if i == 2
            else Y[t - 1, i, j]
}
"""
    x = np.random.default_rng(1).integers(-3, 4, (7, 5)).astype(np.float32)
    want = [x]
    for _ in range(2):
        last, row = want[-1], want[-1].copy()
        row[5:] = last[2:4].sum(1)[:, None]
        row[4], row[2] = last[1].sum() * 2, last[1].argmax()
        want.append(row)
    program = build(text, M=7, N=5)
    np.testing.assert_array_equal(everywhere(program, {"X": x})["Y"], want)
    assert [b.name for b in blocks(program)] == ["sum_k", "argmax_k", "Y"]


def test_a_reduction_whose_loads_are_inside_is_not_guarded() -> None:
    text = "compute f(X: f32[M, N]) -> Y: f32[M] { Y[i] = (sum[k] X[i, k]) if i >= 3 else X[i, 0] + 1.0 }"
    sums, _ = blocks(build(text, M=5, N=4))
    assert "Select" not in str(sums.body)


def test_conditions_that_do_not_bound_a_reduction_do_not_guard_it() -> None:
    other = "compute f(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = (sum[k in N] X[i - 3, k]) if j >= 3 else 0.0 }"
    assert codes(other, M=5, N=4) == ["E0411"]
    either = (
        "compute f(X: f32[M, N]) -> Y: f32[M] { Y[i in M] = (sum[k] X[i - 3, k]) if i >= 3 or X[i, 0] > 0.0 else 0.0 }"
    )
    assert codes(either, M=5, N=4) == ["E0411"]


def test_a_called_compute_has_its_own_names_in_conditions() -> None:
    text = """
compute rises(A: f32[N], X: f32[N]) -> Y: f32[N] { Y[i] = 1.0 if i >= 1 and A[i - 1] < X[i] else 0.0 }
compute f(X: f32[N], Z: f32[N]) -> Y: f32[N] { Y = rises(Z, X) }
"""
    x, z = np.random.default_rng(2).integers(-3, 4, (2, 9)).astype(np.float32)
    want = np.concatenate([[0], z[:-1] < x[1:]])
    np.testing.assert_array_equal(everywhere(build(text, N=9), {"X": x, "Z": z})["Y"], want)
