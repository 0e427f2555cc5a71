"""Pipelines of stencils under the library's rules: what is drawn, what is not, and that the kernels are right."""

from __future__ import annotations

import pytest

from tensorc_dsl.api import Task, TaskFile
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.ir.expr import loads
from tensorc_dsl.ir.program import Block, LoopKind, blocks, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source
from tensorc_dsl.trace.trace import Trace
from tests.codegen import native

TASKS = """
use std.cpu.{default}

/// Each level reads sixteen elements of the one before.
compute levels(X: f32[16 * H, 16 * W]) -> Y: f32[H, W] {
    let A = half(X)
    let B = half(A)
    let C = half(B)
    Y = half(C)
}

compute half(X: f32[H, W]) -> Y: f32[H / 2, W / 2] {
    let D[y in H / 2, x] =
        X[clamp(2 * y - 1, 0, H - 1), x] + X[2 * y, x] + X[2 * y + 1, x] + X[clamp(2 * y + 2, 0, H - 1), x]
    Y[y in H / 2, x in W / 2] =
        D[y, clamp(2 * x - 1, 0, W - 1)] + D[y, 2 * x] + D[y, 2 * x + 1] + D[y, clamp(2 * x + 2, 0, W - 1)]
}

compute window(X: f32[H + 2, W + 1]) -> Y: f32[H, W] {
    let S[y in H, x in W] = sum[i in 3, j in 2] X[y + i, x + j]
    Y[y, x] = S[y, x] / 6.0
}

compute taps(X: f32[H + 2, W], t: f32[3]) -> Y: f32[H, W] {
    Y[y in H, x] = max[i in 3] X[y + i, x] * t[i]
}

/// Taps of their own for each column, and rows without a window: neither is one.
compute others(X: f32[H + 2, W], t: f32[3, W]) -> Y: f32[H, W], Z: f32[H + 2] {
    Y[y in H, x] = sum[i in 3] X[y + i, x] * t[i, x]
    Z[y] = sum[x] X[y, x]
}

task window = window(H=9, W=37) with default
task taps = taps(H=9, W=37) with default
task others = others(H=9, W=3) with default
task levels = levels(H=2, W=5) with default
"""


def task(name: str, target: Target, text: str = TASKS) -> Task:
    return TaskFile(load_source(Source("pipelines.tsched", text)), target)[name]


def drawn(t: Task, count: int) -> list[Trace]:
    return [t.space.sample(stream(n, t.name, "test")) for n in range(count)]


def test_recomputation_is_counted_and_ends_at_a_limit() -> None:
    """Three levels of a pyramid in one expression took 15 s to compile."""
    t = task("levels", Target(vector_bits=512, cores=2))
    most = [max(len(loads(s.value)) for b in blocks(trace.program) for s in b.body) for trace in drawn(t, 6)]
    assert 16 <= max(most) <= 128
    told = {r for trace in drawn(t, 3) for a in t.space.explain(trace) if a.module == "auto_inline" for r in a.reasons}
    assert "`b.inlined_reads <= reads` is false: `b.inlined_reads` is 256, `reads` is 128" in told


@pytest.mark.parametrize("name", ["window", "taps"])
def test_a_window_is_written_out_and_vectorized(name: str) -> None:
    """Its elements were summed one by one."""
    t = task(name, host_target(2))
    traces = drawn(t, 3)
    for trace in traces:
        nests = [(around, b) for around, b in walk(trace.program.body) if isinstance(b, Block)]
        assert not any(b.is_reduction for _, b in nests)
        assert all(around[-1].kind is LoopKind.VECTORIZED for around, _ in nests)
    native.require_right(t, traces)


def test_what_is_no_window_stays_a_sum() -> None:
    for trace in drawn(task("others", Target(vector_bits=512, cores=2)), 3):
        assert "expand_reduction" not in trace.text
