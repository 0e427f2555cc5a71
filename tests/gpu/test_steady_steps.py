"""Steps for which conditions are decided have code without them: masks below the diagonal, what only the first step does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower import steady_steps
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Phase, Steps, format_device, inside
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Select, Var, add, constant, index, rewrite_expr
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import If, Loop, Shuffle
from tensorc_dsl.lower.flat import inside as inside_flat
from tensorc_dsl.proof.sets.linear_forms import TRUE
from tensorc_dsl.proof.sets.simplify import simplify
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


@pytest.mark.corpus
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


def test_a_condition_in_both_parts_of_a_loop_is_decided_for_both() -> None:
    """The parts of a loop that was cut have one variable: of `4 * p <= j` the second part alone says nothing of the first."""
    j, p = Var("j"), Var("p")
    chosen = Select(Compare("<=", Binary("*", p, index(4)), j), Const(1.0, F32), Const(2.0, F32))
    store = Store("O", (j,), chosen)
    parts = tuple(Loop("j", index(a), index(a + 16), LoopKind.SERIAL, (store,)) for a in (16, 0))
    steps = Steps("p", index(16), (Phase(parts),))
    (changed,) = steady_steps._of((steps,), {THREAD: (0, 31)}, None)  # pyright: ignore[reportPrivateUsage]
    assert isinstance(changed, Steps) and isinstance(changed.body[0], Phase)
    for branch in changed.body[0].body:
        assert isinstance(branch, If) and isinstance(branch.body[0], Loop)
        for n in range(16):
            taken = rewrite_expr(branch.cond, lambda e, n=n: index(n) if e == p else e)
            for part in branch.body if simplify(taken, {}) == TRUE else ():
                assert isinstance(part, Loop) and isinstance(part.body[0], Store)
                value, first = part.body[0].value, constant(part.begin)
                assert first is not None
                wanted = {1.0 if 4 * n <= k else 2.0 for k in range(first, first + 16)}
                assert not isinstance(value, Const) or wanted == {value.value}


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
