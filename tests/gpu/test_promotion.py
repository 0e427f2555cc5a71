"""Sums of floats of 8 bits on warpgroups: an instruction keeps 14 bits, so each step of 128 terms is added to sums of f32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.ir.arrays import Array, widen
from tensorc_dsl.ir.contraction import SUM_BITS
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import whole
from tests.gpu.test_hopper import hopper
from tests.programs import proof_fault

TERMS, STEP = 32, 128
"""The terms of an instruction, and of a step of lines of 128 bytes."""


def few_bits(a: Array, b: Array, promoted: int) -> Array:
    """`a @ b.T` as warpgroups compute it, with sums of so many terms added in f32: all terms of an instruction and the sum so
    far are cut at 14 bits of the largest, and the new sum is, too. Written without the emulation."""
    out = np.zeros((len(a), len(b)), np.float32)
    for first in range(0, a.shape[1], promoted):
        part = np.zeros(out.shape, np.float64)
        for k in range(first, min(first + promoted, a.shape[1]), TERMS):
            terms = a[:, None, k : k + TERMS] * b[None, :, k : k + TERMS]
            every = np.concatenate([part[..., None], terms], axis=-1)
            part = cut(cut(every, np.abs(every).max(axis=-1, keepdims=True)).sum(axis=-1))
        out += part.astype(np.float32)
    return out


def cut(x: Array, largest: Array | None = None) -> Array:
    """Numbers without what is below 14 bits of the largest, or of themselves."""
    _, exponent = np.frexp(x if largest is None else largest)
    unit = np.ldexp(1.0, exponent - SUM_BITS)
    return np.trunc(x / unit) * unit


CASES: dict[str, tuple[str, dict[str, Decision]]] = {
    "one after the other": ("two_types(M=64, N=64, K=512, S=f8e4m3, T=f8e4m3)", {"ahead": 0}),
    "ahead": ("two_types(M=128, N=64, K=640, S=f8e5m2, T=f8e4m3)", {"beside": False, "late": True, "ahead": 2}),
    "roles": (
        "two_types(M=128, N=128, K=640, S=f8e4m3, T=f8e5m2)",
        {
            "inner": (1, 2, 1, 64),
            "inner_1": (1, 1, 2, 64),
            "copied": "tma",
            "copied_1": "tma",
            "beside": True,
            "ahead": 2,
        },
    ),
    "a step in part": ("two_types(M=64, N=64, K=272, S=f8e4m3, T=f8e4m3)", {}),
    "one step": ("two_types(M=64, N=64, K=128, S=f8e4m3, T=f8e4m3)", {}),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_each_step_is_added_in_f32(case: str, tmp_path: Path) -> None:
    text, decisions = CASES[case]
    t = hopper(tmp_path, text)
    trace = whole(t.drawn_from(condition(t.model, {"warpgroups": True, **decisions})).sample(0))
    assert ("accumulate_at(" in trace.text) == (case != "one step")
    assert proof_fault(t.program, trace.program) == ""
    found = t.lower(trace)
    assert isinstance(found, DeviceProgram)
    inputs = make_inputs(t.program, 1)
    a, b = (widen(inputs[p.name], p.dtype) for p in t.program.inputs)
    fault, outputs = emulated(found, trace.program, inputs)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["C"], few_bits(a, b, STEP))


@pytest.mark.parametrize("positive", [False, True])
def test_the_bound_holds_for_sums_of_steps_alone(positive: bool, tmp_path: Path) -> None:
    """Of terms of one sign a sum that is never promoted loses a large part; a bound that allowed it would find nothing."""
    t = hopper(tmp_path, "two_types(M=32, N=32, K=2048, S=f8e4m3, T=f8e4m3)")
    inputs = make_inputs(t.program, 1)
    if positive:
        inputs = {name: x & 0x7F for name, x in inputs.items()}
    want, allowed = bounded(t.program, inputs)
    a, b = (widen(inputs[p.name], p.dtype).astype(np.float64) for p in t.program.inputs)
    error = {n: np.abs(few_bits(a, b, n) - want["C"]) for n in (STEP, 2048)}
    assert error[STEP].max() > 0 and (error[STEP] <= allowed["C"]).all()
    assert error[2048].max() > 3 * error[STEP].max()
    assert not positive or (error[2048] > 5 * allowed["C"]).all()
    assert allowed["C"].max() < 0.01 * max(np.sqrt((want["C"] ** 2).mean()), np.abs(want["C"]).max())
