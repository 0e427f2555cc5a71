"""Scores of attention in fragments: each warp has whole rows, reduces them by shuffles, and multiplies what it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import (
    Device,
    DeviceProgram,
    Local,
    Nested,
    Phase,
    barriers_in,
    format_device,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Flat, Shuffle
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.emulation import emulate
from tests.gpu.kernels import DRAWS, kernels_of, ptx
from tests.gpu.test_barriers import check_each_is_needed
from tests.gpu.test_online import check_kernel, online, task
from tests.programs import proof_fault

CASES: Mapping[str, tuple[str, dict[str, Decision]]] = {
    "one step of two warps": ("half(B=1, H=2, M=32, N=64, D=32, E=16) with tensor_rows", {"length": 32}),
    "copies run ahead": (
        "half(B=1, H=1, M=32, N=96, D=16, E=32) with tensor_rows",
        {"length": 32, "ahead": 2, "width_1": 8, "width_2": 8, "width_3": 8},
    ),
    "bf16": ("half(B=2, H=1, M=16, N=32, D=16, E=16, T=bf16) with tensor_rows", {}),
    "primes": ("half(B=1, H=2, M=17, N=96, D=19, E=16) with tensor_rows", {"tall": 2}),
    "the last rows in part": ("half(B=1, H=1, M=37, N=48, D=16, E=16) with tensor_rows", {"tall": 1, "width": 64}),
    "a mask": ("causal(M=64, N=64, D=16, E=16) with tensor_rows", {}),
    "a mask, primes, bf16": ("causal(M=37, N=96, D=11, E=16, T=bf16) with tensor_rows", {"tall": 1}),
    "64 numbers of a head, a mask": ("causal(M=32, N=128, D=64, E=64) with tensor_rows", {"length": 64}),
    "many steps": ("half(B=1, H=1, M=16, N=656, D=16, E=16) with tensor_rows", {"length": 16}),
    "a prime number of keys": ("half(B=1, H=2, M=33, N=37, D=19, E=16) with tensor_rows", {"length": 16, "tall": 1}),
    "a prime number of keys, long steps": (
        "half(B=1, H=1, M=16, N=83, D=16, E=16, T=bf16) with tensor_rows",
        {"length": 64, "ahead": 1},
    ),
    "a prime number of keys, a mask": ("causal(M=61, N=61, D=11, E=16) with finite_rows", {"length": 16, "tall": 1}),
    "128 numbers of a head": ("half(B=1, H=1, M=33, N=96, D=128, E=128, T=bf16) with tensor_rows", {"length": 32}),
}


def in_fragments(t: Task, seed: int, **decisions: Decision) -> Trace:
    return online(t, seed, scores="fragments", **decisions)


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("case", CASES)
def test_scores_stay_in_registers(case: str) -> None:
    """Nothing but copies of the inputs is in shared memory, and reading them has no conflicts."""
    text, decisions = CASES[case]
    t = task(text)
    for seed in range(DRAWS):
        trace = in_fragments(t, seed, **decisions)
        found = check_kernel(t, trace, 4)
        (k,) = kernels_of(t, trace).kernels
        assert {b.name.split("_")[0] for b in k.shared} == {"Q", "K", "V"}
        loads = [x for c in found.counts for x in c.traffic if x.shared and not x.write]
        assert loads and all(x.moves == x.least for x in loads)
        assert proof_fault(t.program, trace.program) == ""


@pytest.mark.corpus
def test_warps_wait_for_copies_alone() -> None:
    text, decisions = CASES["copies run ahead"]
    t = task(text)
    kernels = kernels_of(t, in_fragments(t, 0, **decisions))
    (k,) = kernels.kernels
    assert barriers_in(k.body) == 1 and not k.notes
    lowered = format_device(kernels)
    assert re.search(r"U_part\[.*f32\(e_run\[", lowered)  # the left operand is where the exponentials were stored
    first, later = 1, 1  # what depends on whether a step is the first is there for the first one and for the later ones
    assert lowered.count("shuffle down") == 2 + 2 * (first + later)
    assert lowered.count("shuffle lane 0 of 4") == 3 + first + later
    assert ptx(kernels, "sm_80").count("ldmatrix") == 2 * 1 + 2 + 2 * 2  # scores: both operands; then values alone


@pytest.mark.corpus
def test_what_no_fragment_holds_is_in_shared_memory() -> None:
    """Sums of columns that are no whole instructions, and one row alone."""
    for text in ("M=17, N=96, D=19, E=11", "M=1, N=48, D=16, E=16"):
        t = task(f"half(B=1, H=1, {text}) with tensor_rows")
        trace = online(t, 0)
        assert 'scores ~ sample_categorical(["shared"])' in trace.text


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("text", ["half(B=1, H=1, M=37, N=96, D=32, E=32)", "causal(M=37, N=64, D=32, E=32)"])
def test_attention_is_that_of_numpy(text: str) -> None:
    t = task(f"{text} with tensor_rows")
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.standard_normal(shape_of(b)).astype(np.float16) for b in t.program.inputs}
    q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if "causal" in text:
        scores[np.triu_indices(scores.shape[0], 1, scores.shape[1])] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    fault, outputs = emulated(kernels_of(t, in_fragments(t, 1, tall=1)), t.program, inputs)
    assert fault == ""
    for out in outputs:
        np.testing.assert_allclose(out["O"], weights @ v / weights.sum(-1, keepdims=True), atol=2e-3)


@pytest.mark.corpus("faults of rows")
@pytest.mark.parametrize("ahead", [0, 1])
def test_each_barrier_is_needed(ahead: int) -> None:
    text, decisions = CASES["copies run ahead"]
    t = task(text)
    kernels = kernels_of(t, in_fragments(t, 0, **{**decisions, "ahead": ahead}))
    assert check_each_is_needed(kernels, t.program, make_inputs(t.program, 0)) == 2 - ahead


def changed(p: DeviceProgram, wanted: str, by: Mapping[str, object]) -> DeviceProgram:
    """The kernels with other shuffles in the place of those of one kind."""

    def flat(s: Flat) -> Flat:
        if isinstance(s, Store):
            return s
        s = replace(s, body=tuple(map(flat, s.body)))
        return replace(s, **by) if isinstance(s, Shuffle) and s.move == wanted else s

    def device(s: Device) -> Device:
        if isinstance(s, Nested):
            return replace(s, body=tuple(map(device, s.body)))
        return replace(s, body=tuple(map(flat, s.body))) if isinstance(s, Phase) else s

    return replace(p, kernels=tuple(replace(k, body=tuple(map(device, k.body))) for k in p.kernels))


@pytest.mark.corpus("faults of rows")
@pytest.mark.parametrize(
    ("move", "by"), [("lane", {"width": 8}), ("lane", {"by": 1}), ("lane", {"width": 32}), ("down", {"by": 4})]
)
def test_seeded_faults_of_shuffles_are_caught(move: str, by: Mapping[str, object]) -> None:
    text, decisions = CASES["one step of two warps"]
    t = task(text)
    kernels = kernels_of(t, in_fragments(t, 0, **decisions))
    assert emulate(t.program, emulation(kernels)).fault == ""
    assert emulate(t.program, emulation(changed(kernels, move, by))).fault != ""


@pytest.mark.corpus("faults of rows")
@pytest.mark.parametrize(
    ("right", "wrong"), [("< 37 else -inf", "< 38 else -inf"), ("< 37 else -inf", "< 36 else -inf")]
)
def test_a_key_too_many_or_too_few_is_a_fault(right: str, wrong: str) -> None:
    t = task("half(B=1, H=1, M=16, N=37, D=16, E=16) with tensor_rows")
    text = format_program(in_fragments(t, 0, length=16, tall=1).program)
    assert right in text
    for seeded in (right, wrong):
        program = parse_program(Source("seeded", text.replace(right, seeded)))
        assert (emulate(t.program, emulation(lower_device(program))).fault == "") == (seeded == right)


@pytest.mark.corpus
def test_steps_choose_among_registers() -> None:
    """The maximum before and the one so far are two registers of each row."""
    t = task("half(B=1, H=1, M=16, N=80, D=16, E=16) with tensor_rows")
    kernels = kernels_of(t, in_fragments(t, 0, length=16, tall=1))
    (k,) = kernels.kernels
    assert Local("m_run", k.local[0].dtype, 4) in k.local
    lowered = format_device(kernels)
    assert not re.search(r"\bm_run\[[^\]]*\bp\b", lowered) and "% 2" in lowered
