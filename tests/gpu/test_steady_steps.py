"""Steps for which conditions are decided have code without them: masks below the diagonal, what only the first step does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower import steady_steps
from tensorc_dsl.backend.cuda.lower.kernels import Phase, format_device, inside
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.ir.expr import Compare, Expr, add, index
from tensorc_dsl.lower.flat import If, Shuffle
from tensorc_dsl.lower.flat import inside as inside_flat
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.measure.check import compare
from tests.gpu.kernels import kernels_of
from tests.gpu.test_online import check_kernel, online, task

CASES: Mapping[str, tuple[str, dict[str, Decision]]] = {
    "a mask": (
        "causal(M=96, N=96, D=16, E=16) with tensor_rows",
        {"scores": "fragments", "length": 32, "width": 32, "tall": 1},
    ),
    "a mask that begins later": (
        "causal(M=96, N=96, D=16, E=16, after=5) with tensor_rows",
        {"scores": "fragments", "length": 32, "width": 32, "tall": 1},
    ),
    "a mask, primes": (
        "causal(M=127, N=128, D=11, E=16) with tensor_rows",
        {"scores": "fragments", "length": 32, "width": 32, "tall": 1},
    ),
}


def branches(t: str, draws: dict[str, Decision]) -> list[If]:
    """The conditions of steps that have two codes."""
    found = task(t)
    (k,) = kernels_of(found, online(found, 0, **draws)).kernels
    flat = (x for s in inside(k.body) if isinstance(s, Phase) for x in inside_flat(s.body))
    return [x for x in flat if isinstance(x, If) and "not" in str(x.cond).lower()]


@pytest.mark.parametrize("case", CASES)
def test_steps_below_the_diagonal_compare_nothing_and_are_right(case: str) -> None:
    text, draws = CASES[case]
    t = task(text)
    trace = online(t, 0, **draws)
    lowered = format_device(kernels_of(t, trace))
    begin = lowered.index("if not (")
    first, second = lowered[:begin], lowered[begin:]
    assert "if p < " in first
    assert "-inf" in second and second.count("else -inf") > first.count("else -inf")
    check_kernel(t, trace, 4)


def test_lanes_exchange_under_conditions_that_all_threads_share() -> None:
    for x in branches(*CASES["a mask"]):
        if any(isinstance(y, Shuffle) for y in inside_flat(x.body)):
            assert "thread" not in str(x.cond)


def test_a_step_too_many_without_the_mask_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = steady_steps.steady

    def later(cond: Expr, *more: object) -> tuple[Expr, Expr] | None:
        found = right(cond, *more)  # pyright: ignore[reportArgumentType]
        if found is None or not isinstance(found[0], Compare) or found[0].op != "<":
            return found
        return Compare("<", found[0].lhs, add(found[0].rhs, index(1))), found[1]

    text, draws = CASES["a mask"]
    t = task(text)
    program = online(t, 0, **draws).program
    inputs = make_inputs(t.program, 0)
    want, allowed = bounded(t.program, inputs)

    def wrong() -> str:
        fault, found = emulated(lower_device(program), t.program, inputs)
        return fault or compare("O", found[0]["O"], want["O"], allowed["O"]).fault

    assert wrong() == ""
    monkeypatch.setattr(steady_steps, "steady", later)
    assert "O[" in wrong()
