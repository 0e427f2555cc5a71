"""Pipelines of stencils under the library's rules: what is drawn, what is not, and that the kernels are right."""

from __future__ import annotations

from tensorc_dsl.api import Task, TaskFile
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.ir.expr import loads
from tensorc_dsl.ir.program import blocks
from tensorc_dsl.ir.target import Target
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source
from tensorc_dsl.trace.trace import Trace

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
