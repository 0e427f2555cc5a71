"""Scans: `init` gives the first element alone, however far the step looks back. A scan whose steps read later elements runs
from the last one back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.reference.evaluate import evaluate
from tests.compute.native import everywhere
from tests.compute.texts import build, errors

X = np.array([1.0, 2.0, -1.0, 3.0, 0.5, -2.0, 4.0], np.float32)


def _steps(n: int, step: Callable[[list[float], int], float]) -> list[float]:
    out = [float(X[0])]
    for j in range(1, n):
        out.append(step(out, j))
    return out


@pytest.mark.corpus
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("step", "meant"),
    [
        ("Y[j - 1] + X[j]", lambda y, j: y[j - 1] + X[j]),
        ("2.0 * Y[j - 1] + (Y[j - 2] if j >= 2 else 0.0)", lambda y, j: 2 * y[j - 1] + (y[j - 2] if j >= 2 else 0)),
        ("(Y[j - 2] if j > 1 else X[j]) - 1.0", lambda y, j: (y[j - 2] if j > 1 else X[j]) - 1),
        (
            "(Y[j - 3] if j >= 3 else X[j]) * 0.5 + Y[j - 1]",
            lambda y, j: (y[j - 3] if j >= 3 else X[j]) * 0.5 + y[j - 1],
        ),
        ("select(j >= 4, Y[j - 4], 0.25)", lambda y, j: y[j - 4] if j >= 4 else 0.25),
    ],
)
def test_init_gives_the_first_element_alone(n: int, step: str, meant: Callable[[list[float], int], float]) -> None:
    p = build(f"compute f(X: f32[N]) -> Y: f32[N] {{ Y[j] = scan[j] init X[0] step {step} }}", N=n)
    got = everywhere(p, {"X": X[:n]})["Y"]
    np.testing.assert_allclose(got, _steps(n, meant), rtol=1e-6)


def test_several_indices_each_with_its_lag() -> None:
    text = """compute f(X: f32[M, N]) -> Y: f32[M, N] {
        Y[i, j] = scan[j] init X[i, 0] step X[i, j] + (Y[i - 1, j - 3] if i >= 1 and j >= 3 else Y[i, j - 1])
    }"""
    x: Array = np.arange(15, dtype=np.float32).reshape(3, 5)
    want = x.copy()
    for j in range(1, 5):
        for i in range(3):
            want[i, j] = x[i, j] + (want[i - 1, j - 3] if i >= 1 and j >= 3 else want[i, j - 1])
    np.testing.assert_array_equal(everywhere(build(text, M=3, N=5), {"X": x})["Y"], want)


def test_a_step_that_looks_past_the_first_element_is_refused() -> None:
    text = "compute f(X: f32[N]) -> Y: f32[N] { Y[j] = scan[j] init X[0] step Y[j - 1] + Y[j - 2] }"
    (found,) = errors(text, N=5)
    assert found == (
        "error[E0411]: subscript 1 of `Y` can be -1, but the dimension is 5\n"
        " --> t.tsched:1:80\n"
        "  |\n"
        "1 | compute f(X: f32[N]) -> Y: f32[N] { Y[j] = scan[j] init X[0] step Y[j - 1] + Y[j - 2] }\n"
        "  |                                                                                ^^^^^ -1 when j = 1\n"
        "  = help: `init` gives the first element alone; a step that looks further back needs a condition\n"
        "  = help: say where it is read: `… if j - 2 >= 0 else …`"
    )
    build(text, N=1)  # there is no such step
    other = "compute f(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = scan[i] init X[0, j] step Y[i - 1, j - 1] }"
    (found,) = errors(other, M=3, N=5)
    assert "-1 when j = 0" in found
    assert "`init`" not in found  # the subscript is not that along which the scan runs


@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize(
    ("step", "meant"),
    [
        ("Y[j + 1] + X[j]", lambda y, j, _: y[j + 1] + X[j]),
        (
            "(Y[j + 2] if j < N - 2 else 0.0) - 2.0 * Y[j + 1]",
            lambda y, j, n: (y[j + 2] if j < n - 2 else 0) - 2 * y[j + 1],
        ),
        ("select(j + 4 < N, Y[j + 4], f32(j))", lambda y, j, n: y[j + 4] if j + 4 < n else j),
    ],
)
def test_a_scan_that_reads_later_elements_runs_back(
    n: int, step: str, meant: Callable[[list[float], int, int], float]
) -> None:
    p = build(f"compute f(X: f32[N]) -> Y: f32[N] {{ Y[j] = scan[j] init X[N - 1] step {step} }}", N=n)
    want = [float(X[n - 1])] * n
    for j in range(n - 2, -1, -1):
        want[j] = meant(want, j, n)
    np.testing.assert_allclose(everywhere(p, {"X": X[:n]})["Y"], want, rtol=1e-6)


def test_a_scan_that_runs_back_along_one_row() -> None:
    text = "compute f(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = scan[j] init X[i, N - 1] step X[i, j] + Y[i, j + 1] }"
    assert everywhere(build(text, M=1, N=3), {"X": X[:3].reshape(1, 3)})["Y"].tolist() == [[2.0, 1.0, -1.0]]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_scan_that_runs_back_over_an_open_size(n: int) -> None:
    text = "compute f(X: f32[N]) -> Y: f32[N] { Y[j] = scan[j] init X[N - 1] step X[j] - Y[j + 1] }"
    want = [float(X[n - 1])]
    for j in range(n - 2, -1, -1):
        want.insert(0, float(X[j]) - want[0])
    p = bind(build(text, N=OpenRange(1, 8)), {"N": n})
    assert evaluate(p, {"X": X[:n]})["Y"].tolist() == want


def test_both_directions_along_both_axes() -> None:
    text = """compute f(X: i16[M, N]) -> Y: i16[M, N] {
        let A[i, j] = scan[i] init X[0, j] step X[i, j] + A[i - 1, j]
        let B[i, j] = scan[i] init A[M - 1, j] step A[i, j] - B[i + 1, j]
        let C[i, j] = scan[j] init B[i, 0] step max(B[i, j], C[i, j - 1])
        Y[i, j] = scan[j] init C[i, N - 1] step C[i, j] - 3 * Y[i, j + 1]
    }"""
    x = np.random.default_rng(0).integers(-9, 9, (5, 6)).astype(np.int16)
    a = np.cumsum(x, 0, dtype=np.int16)
    b = a.copy()
    for i in range(3, -1, -1):
        b[i] = a[i] - b[i + 1]
    c = np.maximum.accumulate(b, 1)
    want = c.copy()
    for j in range(4, -1, -1):
        want[:, j] = c[:, j] - np.int16(3) * want[:, j + 1]
    np.testing.assert_array_equal(everywhere(build(text, M=5, N=6), {"X": x})["Y"], want)


def test_a_step_that_runs_back_may_reduce_what_later_ones_made() -> None:
    text = """compute solve(U: f32[N, N], b: f32[N, M]) -> Y: f32[N, M] {
        Y[i, j] = scan[i] init b[N - 1, j] / U[N - 1, N - 1]
            step (b[i, j] - (sum[k in N] (U[i, k] * Y[i + 1, j] if k > i else 0.0))) / U[i, i]
    }"""
    u = np.triu(np.random.default_rng(1).random((4, 4)).astype(np.float32)) + 2 * np.eye(4, dtype=np.float32)
    b = np.random.default_rng(2).random((4, 3)).astype(np.float32)
    want = b / u[3, 3]
    for i in range(2, -1, -1):
        want[i] = (b[i] - sum(u[i, k] * want[i + 1] for k in range(i + 1, 4))) / u[i, i]
    np.testing.assert_allclose(everywhere(build(text, N=4, M=3), {"U": u, "b": b})["Y"], want, rtol=1e-5)


def test_a_step_reads_on_one_side_of_itself() -> None:
    (found,) = errors("compute f(X: f32[N]) -> Y: f32[N] { Y[j] = scan[j] init X[0] step Y[j - 1] + Y[j + 1] }", N=5)
    assert found == (
        "error[E0422]: a step reads `Y` on both sides of itself\n"
        " --> t.tsched:1:80\n"
        "  |\n"
        "1 | compute f(X: f32[N]) -> Y: f32[N] { Y[j] = scan[j] init X[0] step Y[j - 1] + Y[j + 1] }\n"
        "  |                                                                                ^^^^^ `j + 1`\n"
        "  = help: let subscript 1 of `Y` be below `j` wherever the step reads it, or above it"
    )


def test_scans_that_read_each_other_are_told_to_be_one() -> None:
    apart = (
        "compute turn(A: f32[1]) -> S: f32[T] {\n"
        "    let x[t in T] = scan[t] init A[0] step x[t - 1] - 0.5 * y[t - 1]\n"
        "    let y[t in T] = scan[t] init 1.0 step y[t - 1] + 0.5 * x[t - 1]\n"
        "    S[t] = x[t] + y[t]\n"
        "}\n"
    )
    (found,) = errors(apart, T=5)
    assert "help: scans that read each other are one, with an index for the value" in found
    together = (
        "compute turn(A: f32[1]) -> S: f32[T] {\n"
        "    let z[t in T, v in 2] = scan[t] init (A[0] if v == 0 else 1.0)\n"
        "        step (z[t - 1, 0] - 0.5 * z[t - 1, 1] if v == 0 else z[t - 1, 1] + 0.5 * z[t - 1, 0])\n"
        "    S[t] = z[t, 0] + z[t, 1]\n"
        "}\n"
    )
    x, y, sums = float(X[0]), 1.0, list[float]()
    for _ in range(5):
        sums.append(x + y)
        x, y = x - 0.5 * y, y + 0.5 * x
    np.testing.assert_allclose(everywhere(build(together, T=5), {"A": X[:1]})["S"], sums, rtol=1e-6)
