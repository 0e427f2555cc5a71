"""Reductions in the step of a scan: what a step makes of all that the one before it left."""

from __future__ import annotations

import random

import numpy as np
import pytest

from campaigns.random_steps import random_schedule
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.proof.equivalence.validate import Invalid, validate
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tests.compute.native import everywhere
from tests.compute.test_meaning import check_program
from tests.compute.texts import build, checked, codes, errors, parsed
from tests.open.random_open import check_everywhere

STEPS = {
    "matvec": "tanh(X[t, j] + sum[k] W[j, k] * H[t - 1, k])",
    "two": "X[t, j] * (sum[k] H[t - 1, k] * W[k, j]) - (max[k] H[t - 1, k] + W[j, k])",
    "of all": "X[t, j] * 0.5 + 0.25 * sum[k in N] H[t - 1, k]",
    "nested": "X[t, j] + sum[k] W[j, k] * (max[l] H[t - 1, l] * W[k, l])",
    "deeper": "0.5 * (sum[k] W[j, k] * H[t - 1, k]) * (sum[k] H[t - 1, k] * H[t - 1, k] * W[k, k] * 0.1)",
    "window": "sum[k in 3] 0.25 * H[t - 1, clamp(j + k - 1, 0, N - 1)]",
    "two back": "X[t, j] - (sum[k] W[j, k] * H[t - 1, k]) * 0.5 + (H[t - 2, j] if t >= 2 else 0.0)",
    "guarded": "X[t, j] + sum[k] (W[j, k] * H[t - 1, k] if k < j else 0.0)",
    "whole past": "X[t, j] + sum[k in N] (H[t - 1, k] * 0.25 if k <= j and t > 1 else X[t, k])",
    "product": "X[t, j] + prod[k] (W[j, k] * 0.1 + min(abs(H[t - 1, k]), 1.0))",
    "position": "X[t, j] + f32(argmax[k in N] (H[t - 1, k] + X[t, k])) * 0.125",
    "declared": "X[t, j] * 0.5 + reduce larger[k in N] H[t - 1, k]",
    "with another sum": "X[t, j] * (sum[k] W[j, k]) + sum[k] W[k, j] * H[t - 1, k] * 0.5",
    "condition": "X[t, j] if any[k in N] H[t - 1, k] > 0.5 else sum[k in N] H[t - 1, k] - 1.0",
}
REDUCER = "reducer larger(a, b) = a if a > b else max(a, b) identity -inf\n"


def text(step: str) -> str:
    return (
        f"{REDUCER}compute f(X: f32[T, N], W: f32[N, N]) -> H: f32[T, N] {{\n"
        f"    H[t, j] = scan[t] init X[0, j] step {step}\n}}\n"
    )


@pytest.mark.corpus
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_all_readings_agree(step: str, steps: int) -> None:
    p = build(text(step), T=steps, N=4)
    everywhere(p)
    check_program(p, *parsed(text(step)), {"T": steps, "N": 4}, 1)


def test_a_step_is_one_iteration_of_one_loop() -> None:
    assert format_program(build(text(STEPS["matvec"]), T=5, N=4)) == (
        "program f(X: f32[5, 4], W: f32[4, 4], H: f32[5, 4]) {\n"
        "    buffer sum_k: f32[5, 4]\n"
        "    for t in 5 {\n"
        "        for j in 4, k in 4 {\n"
        "            block sum_k {\n"
        "                scan vt in 5 = t\n"
        "                spatial vj in 4 = j\n"
        "                reduce vk in 4 = k\n"
        "                init { sum_k[vt, vj] = 0.0 }\n"
        "                sum_k[vt, vj] = sum_k[vt, vj] + (0.0 if vt < 1 else W[vj, vk] * H[vt - 1, vk])\n"
        "            }\n"
        "        }\n"
        "        for j_1 in 4 {\n"
        "            block H {\n"
        "                scan vt in 5 = t\n"
        "                spatial vj in 4 = j_1\n"
        "                H[vt, vj] = X[0, vj] if vt < 1 else tanh(X[vt, vj] + sum_k[vt, vj])\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
    )


def test_sizes_may_stay_open() -> None:
    p = build(text(STEPS["matvec"]), T=OpenRange(1, 9), N=OpenRange(1, 9))
    for t, n in ((1, 1), (3, 5), (9, 2)):
        everywhere(bind(p, {"T": t, "N": n}))
    assert checked(text(STEPS["matvec"])) == []


@pytest.mark.parametrize("dtype", ["i8", "i64", "u16"])
def test_integers_and_intermediates(dtype: str) -> None:
    source = (
        f"compute f(X: {dtype}[N]) -> Y: {dtype}[N] {{\n"
        f"    let S[t in 4, j in N] = scan[t] init X[j] step S[t - 1, j] + sum[k in N] S[t - 1, k] * {dtype}(k)\n"
        f"    Y[j] = S[3, j] + sum[k] X[k]\n}}\n"
    )
    check_program(build(source, N=3), *parsed(source), {"N": 3}, 0)


def test_an_index_has_the_range_of_the_scans_own_dimension() -> None:
    for step in ("sum[k] H[t - 1, k]", "X[t, j] + (max[k] H[t - 1, k])"):
        assert build(text(step), T=3, N=4) == build(text(step.replace("[k]", "[k in N]")), T=3, N=4)
    source = (
        "compute f(X: f32[N]) -> Y: f32[N] {{ let S[t in 4, j in N] = scan[t] init X[j] step {}\n Y[j] = S[3, j] }}"
    )
    assert build(source.format("sum[k] S[t - 1, k]"), N=5) == build(source.format("sum[k in N] S[t - 1, k]"), N=5)
    assert codes(source.format("sum[k] S[t - 1, k]").replace(" in N]", "]", 1), N=5) == ["E0407"]


def test_what_a_reduction_may_not_read() -> None:
    assert codes(text("sum[k in N] H[t, k]"), T=3, N=3) == ["E0422"]
    assert codes(text("sum[k in N] H[t - k, k]"), T=3, N=3) == ["E0422"]
    (error,) = errors(text("H[t - 1, j] + sum[k in N] H[t - 2, k]"), T=3, N=3)
    assert "subscript 1 of `H` can be -1" in error


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_schedules_keep_the_order_of_the_steps(step: str, seed: int) -> None:
    original = build(text(step), T=4, N=4)
    program, history = random_schedule(original, random.Random(f"{step}{seed}"), 16)
    check_everywhere(original, program, [{}], seed, orders=True)
    assert not isinstance(validate(original, program), Invalid), history


def test_the_reference_of_many_steps() -> None:
    p = build(text(STEPS["matvec"]), T=30, N=7)
    given = make_inputs(p, 0)
    h = given["X"][0].astype(np.float64)
    for x in given["X"][1:].astype(np.float64):
        h = np.tanh(x + given["W"].astype(np.float64) @ h)
    np.testing.assert_allclose(evaluate(p, given)["H"][-1], h, rtol=1e-9)
