"""Steps of a scan that read elements at distances that vary: triangular solves, filters of any order, heaps."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tests.compute.native import everywhere
from tests.compute.test_meaning import check_program
from tests.compute.texts import build, errors, parsed

STEPS = {
    "all before": "X[t, j] - 0.25 * sum[k in T] (W[j, j] * H[k, j] if k < t else 0.0)",
    "guard inside": "X[t, j] - 0.25 * sum[k in T] W[j, j] * (H[k, j] if k < t else 0.0)",
    "a filter": "X[t, j] + sum[k in 3] (W[j, k % N] * H[t - 1 - k, j] * 0.25 if t - 1 - k >= 0 else 0.0)",
    "every other": "X[t, j] + sum[k in 3] (H[t - 2 * k - 2, j] * 0.25 if 2 * k + 2 <= t else 0.0)",
    "a heap": "X[t, j] * 0.5 + H[t / 2, j]",
    "another heap": "X[t, j] * 0.5 + H[(t - 1) / 2, j]",
    "where data say": "X[t, j] + 0.25 * H[clamp(i32(X[t, j] * 9.0), 0, t - 1), j]",
    "where a result says": "X[t, j] + 0.25 * H[clamp(t - i32(H[t - 1, j] * 4.0), 0, t - 1), j]",
    "a guard around a sum": "X[t, j] + (0.25 * (sum[k in 2] H[2 * k, j]) if t >= 3 else 0.0)",
    "products of earlier ones": "sum[k in T] (H[k, j] * H[t - 1 - k, j] * 0.25 if k < t else 0.0)",
}


def text(step: str, init: str = "X[0, j]") -> str:
    return (
        f"compute f(X: f32[T, N], W: f32[N, N]) -> H: f32[T, N] {{\n    H[t, j] = scan[t] init {init} step {step}\n}}\n"
    )


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("step", "steps"), [*((s, 5) for s in STEPS.values()), (STEPS["all before"], 1), (STEPS["a heap"], 2)]
)
def test_all_readings_agree(step: str, steps: int) -> None:
    p = build(text(step), T=steps, N=3)
    everywhere(p)
    check_program(p, *parsed(text(step)), {"T": steps, "N": 3}, 1)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("back", [False, True])
def test_a_triangular_solve(rows: int, back: bool) -> None:
    first, later = ("N - 1", ">") if back else ("0", "<")
    p = build(
        "compute f(L: f64[N, N], B: f64[N, M]) -> X: f64[N, M] {\n"
        f"    X[i, j] = scan[i] init B[{first}, j] / L[{first}, {first}]\n"
        f"        step (B[i, j] - (sum[k in N] (L[i, k] * X[k, j] if k {later} i else 0.0))) / L[i, i]\n}}\n",
        N=rows, M=3,
    )  # fmt: skip
    inputs = make_inputs(p, 1)
    inputs["L"] = inputs["L"] * 0.25 + np.eye(rows)
    triangle = np.triu(inputs["L"]) if back else np.tril(inputs["L"])
    np.testing.assert_allclose(evaluate(p, inputs)["X"], np.linalg.solve(triangle, inputs["B"]), rtol=1e-12)
    everywhere(p)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("H[clamp(i32(X[t, j]), 0, t), j]", "known yet"),
        ("(sum[k in 2] H[2 * k, j]) if t >= 2 else 0.0", "known yet"),
        ("sum[k in T] (H[k, j] if k <= t else 0.0)", "where it is not known yet"),
        ("sum[k in T] H[k, j]", "where it is not known yet"),
        ("sum[k in T] (0.0 if k < t else H[k, j])", "where it is not known yet"),
        ("sum[k in T] (H[k, j] if k < t or W[j, j] > 0.0 else 0.0)", "where it is not known yet"),
        ("sum[k in T] (H[k, j] if k < t else (H[k, j] if k > t else 0.0))", "on both sides of itself"),
        ("H[(t + 1) / 2, j]", "where it is not known yet"),
    ],
)
def test_an_element_that_may_not_be_known_is_refused(step: str, said: str) -> None:
    (found,) = errors(text(step), T=5, N=3)
    assert "error[E0422]" in found
    assert said in found
