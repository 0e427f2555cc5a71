"""Rows of attention end where their mask does: blocks run no steps that the mask leaves out for all of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import Device, DeviceProgram, Nested, Steps
from tensorc_dsl.ir.expr import Expr, constant, free_vars, index, sub, substitute
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.measure.emulation import Emulated, emulate
from tests.examples import FIRST
from tests.gpu.kernels import DRAWS, kernels_of
from tests.gpu.test_barriers import check_each_is_needed
from tests.gpu.test_online import check_kernel, online, task
from tests.programs import proof_fault

CASES: Mapping[str, tuple[str, dict[str, Decision], int]] = {
    "in fragments": (
        "causal(M=128, N=128, D=16, E=16) with finite_rows",
        {"scores": "fragments", "length": 16, "width": 64, "tall": 1},
        20,
    ),
    "in fragments, longer steps than rows": (
        "causal(M=64, N=128, D=16, E=16) with finite_rows",
        {"scores": "fragments", "length": 64, "width": 32, "tall": 1, "ahead": 0},
        4,
    ),
    "copies run ahead, primes": (
        "causal(M=61, N=96, D=11, E=16) with finite_rows",
        {"scores": "fragments", "length": 16, "width": 32, "tall": 1, "ahead": 1},
        10,
    ),
    "in shared memory": (
        "causal(M=64, N=64, D=16, E=16) with finite_rows",
        {"scores": "shared", "length": 16, "width": 128, "piece": 16},
        10,
    ),
    "sums with the condition": ("masked(M=24, N=27, D=4, E=3) with rows", {"length": 16, "width": 64, "height": 4}, 8),
    "more rows than keys": (
        "causal(M=80, N=32, D=16, E=16) with finite_rows",
        {"scores": "fragments", "length": 16, "width": 32, "tall": 1},
        9,
    ),
}  # fmt: skip
"""A task, decisions, and the steps of all blocks together."""


def steps_of(p: DeviceProgram) -> int:
    """The steps of all blocks of the only kernel; those of a block that has one have no loop."""
    (k,) = p.kernels
    blocks = constant(k.grid[0]) or 0
    ends = [s.end for s in inside(k.body) if isinstance(s, Steps) and s.var == "p"]
    return (
        sum(constant(simplify(substitute(e, {"block.x": index(n)}), {})) or 0 for e in ends for n in range(blocks))
        or blocks
    )


def inside(body: tuple[Device, ...]) -> list[Device]:
    return [x for s in body for x in (s, *(inside(s.body) if isinstance(s, Nested) else ()))]


def with_ends(p: DeviceProgram, new: Callable[[Expr], Expr]) -> DeviceProgram:
    """The kernels with other ends of the loops over steps."""

    def go(body: tuple[Device, ...]) -> tuple[Device, ...]:
        out = [replace(s, body=go(s.body)) if isinstance(s, Nested) else s for s in body]
        return tuple(
            replace(s, end=new(s.end)) if isinstance(s, Steps) and "block.x" in free_vars(s.end) else s for s in out
        )

    return replace(p, kernels=tuple(replace(k, body=go(k.body)) for k in p.kernels))


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("case", CASES)
def test_steps_behind_the_mask_are_skipped(case: str) -> None:
    text, decisions, steps = CASES[case]
    t = task(text)
    for seed in range(FIRST, FIRST + DRAWS):
        trace = online(t, seed, **decisions)
        check_kernel(t, trace, 4 if "finite" in text else 0)
        assert proof_fault(t.program, trace.program) == ""
        assert steps_of(kernels_of(t, trace)) == steps


def cost(found: Emulated) -> tuple[int, int]:
    """Passes over shared memory and barriers of all blocks."""
    return sum(c.moves(True) for c in found.counts), sum(c.barriers for c in found.counts)


@pytest.mark.corpus("wrong rows of attention")
def test_a_mask_halves_what_is_done() -> None:
    """Without the assumption that values are finite, all steps run: a term behind the mask may be NaN."""
    text, decisions, _ = CASES["in fragments"]
    found = []
    for space in ("finite_rows", "tensor_rows"):
        t = task(text.replace("finite_rows", space))
        found.append(cost(t.emulate(online(t, 0, **decisions))))
    (skipped, few), (whole, all_of) = found
    assert skipped < 0.7 * whole and few <= all_of


@pytest.mark.corpus("faults of rows")
@pytest.mark.parametrize("case", ["in fragments", "in shared memory", "copies run ahead, primes"])
def test_one_step_less_is_a_fault(case: str) -> None:
    text, decisions, _ = CASES[case]
    t = task(text)
    kernels = kernels_of(t, online(t, 0, **decisions))
    assert emulate(t.program, emulation(kernels)).fault == ""
    for new in (lambda e: sub(e, index(1)), lambda e: substitute(e, {"block.x": index(0)})):
        wrong = with_ends(kernels, new)
        assert wrong != kernels and emulate(t.program, emulation(wrong)).fault != ""


@pytest.mark.corpus("faults of rows")
def test_each_barrier_is_needed() -> None:
    text, decisions, _ = CASES["in fragments"]
    t = task(text)
    kernels = kernels_of(t, online(t, 0, **{**decisions, "ahead": 1}))
    assert check_each_is_needed(kernels, t.program, make_inputs(t.program, 0)) >= 1
