"""Kernels that memory bounds move 16 bytes at once, and hold the stages of a row in registers."""

from __future__ import annotations

import re

import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.lower.kernels import format_device
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import kernels_of, ptx, whole
from tests.programs import proof_fault

HEAD = """
use std.gpu.default.{default}
use std.gpu.targets.{sm_80}
use std.ops.{softmax, layer_norm}

compute sums(X: T[M, N]; T: dtype = f32) -> S: T[M] {
    S[i] = sum[j] X[i, j]
}

compute mapped(X: T[M, N], Z: T[M, N]; T: dtype = f32) -> Y: T[M, N] {
    Y[i, j] = max(X[i, j], T(0.0)) + Z[i, j] * X[i, j]
}
"""

ROW: dict[str, Decision] = {"one_kernel": True, "width": 32, "wide": 4, "combine": "by_shuffles"}
SUMS: dict[str, Decision] = {"in_parts": False, "together": True, "width": 64, "combine": "by_shuffles"}
CASES: dict[str, tuple[str, dict[str, Decision], int]] = {
    "softmax": ("softmax(M=3, N=512)", ROW, 4),
    "softmax, a last vector": ("softmax(M=2, N=388)", ROW, 4),
    "layer norm": ("layer_norm(M=2, N=512)", ROW, 4),
    "sums": ("sums(M=3, N=640)", {**SUMS, "wide": 4}, 4),
    "sums of f64": ("sums(M=3, N=640, T=f64)", {**SUMS, "wide": 2}, 2),
    "a map": ("mapped(M=7, N=36)", {"wide": 4, "times": 2, "width": 32}, 4),
    "a map of f16": ("mapped(M=7, N=40, T=f16)", {"wide": 8, "times": 1, "width": 32}, 4),
}
"""Tasks, draws, and the registers of a load."""


def task(text: str) -> Task:
    return td.loads(f"{HEAD}\ntask t = {text} with default\n")["t"]


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_loads_and_stores_are_vectors(case: str) -> None:
    text, draws, lanes = CASES[case]
    t = task(text)
    for seed in range(2):
        trace = whole(t.drawn_from(condition(t.model, draws)).sample(seed))
        code = ptx(kernels_of(t, trace), "sm_80")
        assert re.search(rf"ld\.global(\.nc)?\.(L\S+\.)?v{lanes}", code), trace.text
        assert ".local" not in code
        found = t.emulate(trace)
        assert (found.fault, found.max_error <= 1) == ("", True), trace.text
        assert proof_fault(t.program, trace.program) == ""


@pytest.mark.corpus
def test_exponentials_of_a_row_are_in_registers_and_made_once() -> None:
    t = task("softmax(M=3, N=512)")
    drawn = t.drawn_from(condition(t.model, {**ROW, "inline": False}))
    p = kernels_of(t, whole(drawn.sample(0)))
    assert "private e: f32[16]" in format_device(p)
    assert ptx(p, "sm_80").count("ex2.approx") == 16


@pytest.mark.corpus
@pytest.mark.parametrize("text", ["softmax(M=3, N=37)", "mapped(M=7, N=35)", "sums(M=3, N=641)", "sums(M=3, N=1)"])
def test_rows_that_are_no_vectors_are_read_one_by_one(text: str) -> None:
    t = task(text)
    for seed in range(3):
        trace = whole(t.sample(seed))
        found = t.emulate(trace)
        assert (found.fault, found.max_error <= 1) == ("", True), trace.text
