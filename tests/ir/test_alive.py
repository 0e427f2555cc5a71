"""References of stencils over time: only the steps that are read are kept, and nothing between the borders is gathered."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference import values
from tensorc_dsl.reference import values as cases_module
from tensorc_dsl.reference.evaluate import evaluate, unscheduled_nests
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.reference.values import Box, alive_steps, decided_parts
from tensorc_dsl.tuning.measure.local import memory_needed
from tests.compute.texts import build

HEAT = """compute heat(X: f32[N, M]; T: int = 60) -> Y: f32[N, M] {
    let S[t in T, i in N, j in M] = scan[t]
        init X[i, j]
        step (
            0.2 * (S[t - 1, i, j] + S[t - 1, i, j - 1] + S[t - 1, i, j + 1] + S[t - 1, i + 1, j] + S[t - 1, i - 1, j])
            if 1 <= i < N - 1 and 1 <= j < M - 1
            else S[t - 1, i, j]
        )
    Y[i, j] = S[T - 1, i, j]
}"""


def scan(step: str, result: str, more: str = "") -> str:
    return f"""compute f(X: f32[N, M]; T: int = 7) -> Y: f32[N, M] {{
        let S[t in T, i in N, j in M] = scan[t] init X[i, j] step {step}
        {more}
        Y[i, j] = {result}
    }}"""


KEPT = {
    "two": (scan("0.5 * S[t - 1, i, M - 1 - j]", "S[T - 1, i, j]"), {"S": 2}),
    "three": (scan("S[t - 1, i, j] + S[t - 2, i, j] if t > 1 else X[i, j]", "S[T - 1, i, j]"), {"S": 3}),
    "two of the end": (scan("0.5 * S[t - 1, N - 1 - i, j]", "S[T - 1, i, j] - S[T - 4, i, j]"), {"S": 4}),
    "back": (scan("0.5 * S[t + 1, i, M - 1 - j]", "S[0, i, j] + S[1, i, j]"), {"S": 2}),
    "all, by the caller": (scan("0.5 * S[t - 1, i, j]", "S[0, i, j]"), {}),
    "all, by another": (
        scan("0.5 * S[t - 1, i, j]", "R[T - 1, i, j]",
             "let R[t in T, i in N, j in M] = scan[t] init X[i, j] step R[t - 1, i, j] + S[t - 1, i, j]"),
        {"R": 2},
    ),
    "in any order": (scan("0.5 * S[t - 1, i, j]", "S[(i + j) % T, i, j]"), {}),
    "with a sum": (scan("0.1 * sum[k in M] S[t - 1, i, k] + S[t - 1, i, j]", "S[T - 1, i, j]"), {"S": 2}),
    "clamped": (
        scan("S[t - 1, clamp(i - 1, 0, N - 1), j] - 0.5 * S[t - 1, i, clamp(j + 1, 0, M - 1)]", "S[T - 1, i, j]"),
        {"S": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_the_steps_that_are_read_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, kept = KEPT[name]
    p = build(text, N=5, M=6)
    assert {n: a.steps for n, a in alive_steps(p, unscheduled_nests(p)).items()} == kept
    x = make_inputs(p, 0)
    want = evaluate(p, x)["Y"]
    np.testing.assert_allclose(interpret(p, x)["Y"], want, rtol=1e-4, atol=1e-4)
    same, allowed = bounded(p, x)
    np.testing.assert_array_equal(same["Y"], want)
    assert 0 < allowed["Y"].max() < 1e-3
    monkeypatch.setattr(cases_module, "WORTH", 0)
    cut, bounds = bounded(p, x)
    np.testing.assert_array_equal(cut["Y"], want)
    np.testing.assert_array_equal(bounds["Y"], allowed["Y"])
    np.testing.assert_array_equal(evaluate(p, x)["Y"], want)


def peak(p: Program) -> int:
    x = make_inputs(p, 0)
    tracemalloc.start()
    bounded(p, x)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_a_stencil_over_time_takes_the_memory_of_a_few_steps() -> None:
    """It took that of all of them, twice: 3 GB for 100 steps of a picture."""
    p = build(HEAT, N=100, M=120)
    step = 8 * 100 * 120
    assert peak(p) < 20 * step
    assert memory_needed(p) < 3 * 4 * 60 * 100 * 120 + 40 * step


def test_between_its_borders_a_stencil_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(*_: object) -> None:
        raise AssertionError("gathered")

    monkeypatch.setattr(values, "gather", gather)
    p = build(HEAT, N=100, M=120)
    bounded(p, make_inputs(p, 0))


def test_a_box_is_cut_where_conditions_turn() -> None:
    p = build("""compute f(X: f32[N, M]) -> Y: f32[N, M] {
        Y[i, j] = X[i - 2, min(j, M - 3)] if i >= 2 and not j == 4 else X[i, j] if i + j < 7 or i != 1 else 0.0
    }""", N=70, M=80)  # fmt: skip
    (block,) = (b for nest in unscheduled_nests(p) for b in nest)
    whole = Box(("vi", "vj"), (0, 0), (70, 80))
    parts = decided_parts([block.body[0].value], whole)
    seen = np.zeros((70, 80), int)
    for part in parts:
        seen[part.slices((0, 1))] += 1
    assert (seen == 1).all() and 4 <= len(parts) < 20
    assert {part.start[0] for part in parts} >= {0, 2} and {part.start[1] for part in parts} >= {0, 4, 5, 77}


def test_a_box_that_would_fall_into_many_parts_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases_module, "MOST", 3)
    p = build(HEAT, N=100, M=120)
    (block, _) = (b for nest in unscheduled_nests(p) for b in nest)
    whole = Box(("vt", "vi", "vj"), (1, 0, 0), (1, 100, 120))
    assert decided_parts([block.body[0].value], whole) == [whole]
