"""Scans: `init` gives the first element alone, however far the step looks back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array
from tests.compute.native import everywhere
from tests.compute.texts import build, errors

X = np.array([1.0, 2.0, -1.0, 3.0, 0.5, -2.0, 4.0], np.float32)


def _steps(n: int, step: Callable[[list[float], int], float]) -> list[float]:
    out = [float(X[0])]
    for j in range(1, n):
        out.append(step(out, j))
    return out


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
        "  = help: `init` gives the first element alone; a step that looks further back needs a condition"
    )
    build(text, N=1)  # there is no such step
