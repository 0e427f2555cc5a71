"""Sums over matches in the default space: each term is added where data say, however the sum is written."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import Task, TaskFile
from tensorc_dsl.ir.program import For, Program, is_scattered, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Loop, inside
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen import native
from tests.steps import calls

TASKS = {
    "histogram": "compute f(X: u8[H, W]) -> C: i32[256] {\n C[v] = sum[y, x] (1 if X[y, x] == u8(v) else 0)\n}",
    "weighted": (
        "compute f(X: i32[H, W], V: f32[H, W]) -> C: f32[40] {\n"
        " C[v in 40] = sum[y, x] (0.0 if i32(v) != X[y, x] else V[y, x])\n}"
    ),
    "columns": "compute f(X: u8[H, W]) -> C: i32[256, W] {\n C[v, x] = sum[y] i32(X[y, x] == u8(v))\n}",
    "table": (
        "compute f(I: i32[H], G: f32[H, W]) -> T: f32[50, W] {\n"
        " T[v in 50, x] = sum[y] (G[y, x] if I[y] == i32(v) else 0.0)\n}"
    ),
    "pairs": (
        "compute f(A: i32[H, W], B: i32[H, W]) -> C: i32[7, 9] {\n"
        " C[a in 7, b in 9] = sum[y, x] (1 if A[y, x] == i32(a) and B[y, x] == i32(b) else 0)\n}"
    ),
    "cells": (
        "compute f(X: f32[H, W]) -> C: f32[H / 8, W / 8, 9] {\n"
        " let Z[y, x] = i32(clamp(X[y, x], 0.0, 1.0) * 8.0 + 0.5)\n"
        " C[y in H / 8, x in W / 8, z in 9] = sum[i in 8, j in 8]"
        " (X[8 * y + i, 8 * x + j] if Z[8 * y + i, 8 * x + j] == i32(z) else 0.0)\n}"
    ),
    "greatest": (
        "compute f(X: i32[H, W], V: i32[H, W]) -> C: i32[30] {\n"
        " C[v in 30] = max[y, x] (V[y, x] if X[y, x] % 30 == i32(v) else -2147483648)\n}"
    ),
}


def task(name: str, target: Target) -> Task:
    text = f"use std.cpu.{{default}}\n{TASKS[name]}\ntask t = f(H=41, W=48) with default\n"
    return TaskFile(load_source(Source("scatters.tsched", text)), target)["t"]


def scattered(p: Program) -> list[str]:
    return [s.var for _, s in walk(p.body) if isinstance(s, For) and is_scattered(s)]


def drawn(t: Task, count: int) -> list[Trace]:
    """Schedules in which the sum is scattered."""
    found = [t.sample(0, n) for n in range(count + 3)]
    return [trace for trace in found if scattered(trace.program)][:count]


@pytest.mark.corpus
@pytest.mark.parametrize("name", TASKS)
def test_draws_are_right_and_visit_no_other_place(name: str) -> None:
    t = task(name, host_target(2))
    traces = drawn(t, 1)
    assert len(traces) == 1
    for trace in traces:
        assert isinstance(validate(t.program, trace.program), Valid)
        assert not [s for s in inside(lower_cpu(trace.program).body) if isinstance(s, Loop) and s.scattered]
    native.require_right(t, traces)


def test_data_of_a_match_are_places_and_a_little_beyond() -> None:
    """They were at most 9, whatever the number of places."""
    found = make_inputs(task("weighted", Target()).program, 3)["X"]
    assert found.min() < 0 and found.max() > 39
    assert set(range(40)) < set(found.flat)


def test_a_product_with_a_float_stays_a_sum_of_all() -> None:
    """0 times infinity is NaN: what is not chosen would decide the result."""
    file = TASKS["table"].replace("(G[y, x] if I[y] == i32(v) else 0.0)", "G[y, x] * f32(I[y] == i32(v))")
    source = Source("float.tsched", f"use std.cpu.{{default}}\n{file}\ntask t = f(H=41, W=48) with default\n")
    t = TaskFile(load_source(source), Target(cores=2))["t"]
    assert not any(scattered(t.sample(0, n).program) for n in range(4))


def test_the_reference_of_many_places_takes_one_step_for_a_term() -> None:
    """A table of a million places and 4096 indices was 4096 million comparisons."""
    many = "compute f(I: i32[N], V: f32[N]; M: int) -> C: f32[M] {\n C[v in M] = sum[i] (V[i] if I[i] == i32(v) else 0.0)\n}"
    file = f"use std.cpu.{{default}}\n{many}\ntask t = f(N=4096, M=1000000) with default\n"
    program = TaskFile(load_source(Source("many.tsched", file)), Target())["t"].program
    inputs = make_inputs(program, 0)
    inside = (inputs["I"] >= 0) & (inputs["I"] < 1000000)
    want = np.bincount(inputs["I"][inside], inputs["V"][inside].astype(np.float64), 1000000)
    assert calls(lambda: bounded(program, inputs)) < 20_000
    np.testing.assert_allclose(evaluate(program, inputs)["C"], want)


def test_the_tolerance_of_matches_is_that_of_the_whole_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("weighted", "cells", "greatest"):
        program = task(name, Target()).program
        inputs = make_inputs(program, 1)
        values, allowed = bounded(program, inputs)
        with monkeypatch.context() as m:
            m.setattr("tensorc_dsl.reference.tolerance.matches", lambda *_: None)
            m.setattr("tensorc_dsl.reference.evaluate.matches", lambda *_: None)
            whole, wide = bounded(program, inputs)
        np.testing.assert_allclose(values["C"], whole["C"], rtol=1e-12)
        np.testing.assert_allclose(allowed["C"], wide["C"], rtol=1e-9)


def test_few_places_that_are_scattered_are_not_cut_into_parts_again() -> None:
    text = """use std.cpu.{default}
compute f(I: i32[Z], V: f32[Z]) -> C: f32[7] { C[i in 7] = sum[z] (V[z] if I[z] == i32(i) else 0.0) }
task t = f(Z=11)"""
    t = TaskFile(load_source(Source("few.tsched", text)), host_target(2))["t"]
    made = [t.sample(seed) for seed in range(12)]
    assert any(map(scattered, (trace.program for trace in made)))
    assert [trace.refused for trace in made] == [()] * 12
