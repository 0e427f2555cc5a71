"""`std.cpu.columns`: reductions down columns run in strips, alone, in parts or with what reads them; other blocks do not."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.program import Block, LoopKind, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.expansion import stream
from tests.codegen import native
from tests.drawn import drawn, task_of

TASKS = """
use std.cpu.{default}
use std.ops.{argmax, matmul, softmax}

compute sums(X: f32[M, N]) -> S: f32[N] { S[j] = sum[i] X[i, j] }
compute middle(X: f64[B, M, N]) -> S: f64[B, N] { S[b, j] = max[i] X[b, i, j] }
compute pooled(X: f32[B, H, W, C]) -> Y: f32[B, C] { Y[b, c] = (sum[h, w] X[b, h, w, c]) / f32(H * W) }
compute bytes(X: u8[M, N]) -> S: i32[N] { S[j] = sum[i] i32(X[i, j]) }
compute best(X: f32[M, N]) -> I: i32[N] { I[j] = argmax[i] X[i, j] }
compute lse(X: f32[M, N]) -> Y: f32[N] {
    let m[j] = max[i] X[i, j]
    let s[j] = sum[i] exp(X[i, j] - m[j])
    Y[j] = log(s[j]) + m[j]
}
compute channels(X: f32[B, C, P]) -> Y: f32[B, C, P] {
    let m[b, p] = max[c] X[b, c, p]
    let e[b, c, p] = exp(X[b, c, p] - m[b, p])
    let s[b, p] = sum[c] e[b, c, p]
    Y[b, c, p] = e[b, c, p] / s[b, p]
}
compute normalized(X: f32[P, C], g: f32[C]) -> Y: f32[P, C] {
    let mean[c] = (sum[p] X[p, c]) / f32(P)
    let v[c] = sum[p] (X[p, c] - mean[c]) * (X[p, c] - mean[c])
    Y[p, c] = (X[p, c] - mean[c]) / sqrt(v[c] / f32(P) + 0.00001) * g[c]
}
compute both(X: f32[M, N]) -> S: f32[N], Y: f32[M, N] {
    S[j] = sum[i] X[i, j]
    Y[i, j] = X[i, j] - S[j]
}
compute turned(X: f32[M, N]) -> Y: f32[N, M] {
    let s[j] = sum[i] X[i, j]
    Y[j, i] = X[i, j] - s[j]
}
compute rows(X: f32[M, N]) -> S: f32[M] { S[i] = sum[j] X[i, j] }
compute colours(X: f32[M, 3]) -> S: f32[3] { S[c] = sum[i] X[i, c] }
compute weighted(X: f32[M, N], w: f32[M]) -> S: f32[N] { S[j] = sum[i] X[i, j] * w[i] }
compute heads(P: f32[H, M], V: f32[H, M, N]) -> S: f32[H, N] { S[h, j] = sum[i] P[h, i] * V[h, i, j] }
compute lowest(X: f16[M, N], w: f32[M]) -> S: f32[N] { S[j] = min[i] f32(X[i, j]) + w[i] }
compute centred(X: f32[M, N], w: f32[M]) -> Y: f32[M, N] {
    let s[j] = sum[i] X[i, j] * w[i]
    Y[i, j] = X[i, j] - s[j]
}

task plain = sums(M=37, N=53) with default
task one_row = sums(M=1, N=53) with default
task no_row = sums(M=0, N=53) with default
task long = sums(M=1025, N=16) with default
task open_rows = sums(M=1..4096, N=53) with default
task open_columns = sums(M=37, N=1..4096) with default
task middle = middle(B=3, M=5, N=19) with default
task pooled = pooled(B=2, H=5, W=3, C=67) with default
task bytes = bytes(M=29, N=131) with default
task best = best(M=37, N=53) with default
task lse = lse(M=37, N=53) with default
task channels = channels(B=3, C=5, P=41) with default
task one_map = channels(B=1, C=5, P=41) with default
task normalized = normalized(P=31, C=45) with default
task both = both(M=37, N=53) with default
task turned = turned(M=37, N=53) with default
task weighted = weighted(M=37, N=53) with default
task weighted_wide = weighted(M=1031, N=517) with default
task one_weight = weighted(M=1, N=53) with default
task no_weight = weighted(M=0, N=53) with default
task heads = heads(H=3, M=29, N=67) with default
task lowest = lowest(M=31, N=259) with default
task centred = centred(M=31, N=259) with default
task wide = sums(M=19, N=1031) with default
task few = sums(M=2111, N=3) with default
task few_bytes = bytes(M=1024, N=3) with default
task few_pixels = pooled(B=1, H=37, W=67, C=3) with default
task few_images = pooled(B=2, H=37, W=67, C=3) with default
task few_rows = sums(M=67, N=5) with default
task across = rows(M=37, N=53) with default
task best_of_rows = argmax(M=37, N=53) with default
task colours = colours(M=37) with default
task row_of_product = matmul(M=1, N=37, K=19) with default
task soft = softmax(M=13, N=35) with default
task product = matmul(M=33, N=37, K=19) with default
"""
NAMES = [line.split()[1] for line in TASKS.splitlines() if line.startswith("task")]
COLUMNS = NAMES[: NAMES.index("few")]
FEW = ("few", "few_bytes", "few_pixels", "few_images")
MACHINE = Target(vector_bits=512, cores=2, features="+avx2,+fma")


def task(name: str, target: Target = MACHINE) -> Task:
    return task_of("columns.tsched", TASKS, name, target)


@pytest.mark.corpus
@pytest.mark.parametrize("name", NAMES)
def test_the_rule_is_for_reductions_down_columns(name: str) -> None:
    t = task(name)
    attempts = t.space.explain(t.space.sample(stream(0, name, "test")))
    applied = any(not a.reasons for a in attempts if a.module.startswith("reduce_columns"))
    assert applied == (
        name in (*COLUMNS, "row_of_product") and name not in ("one_row", "no_row", "one_weight", "no_weight")
    )


@pytest.mark.corpus
@pytest.mark.parametrize("name", COLUMNS[:3] + NAMES[len(COLUMNS) :])
def test_few_columns_run_several_rows_at_a_time(name: str) -> None:
    assert any("few_columns" in t.decisions for t in drawn(task(name), 4)) == (name in FEW)


@pytest.mark.corpus
@pytest.mark.parametrize("name", FEW)
def test_kernels_of_few_columns_compute_what_the_task_does(name: str) -> None:
    t = task(name, host_target(2))
    traces = [x for x in drawn(t, 6) if x.decisions.get("few_columns")][:3]
    assert traces
    for trace in traces:
        assert trace.refused == ()
        verify(trace.program)
        assert t.expand(Source("trace", trace.text)).program == trace.program
    native.require_right(t, traces)


@pytest.mark.corpus
@pytest.mark.parametrize("name", COLUMNS)
def test_draws_apply_and_replay(name: str) -> None:
    t = task(name)
    for trace in drawn(t, 4):
        assert trace.refused == ()
        verify(trace.program)
        assert t.expand(Source("trace", trace.text)).program == trace.program


@pytest.mark.corpus
@pytest.mark.parametrize("name", [n for n in COLUMNS if not n.startswith("open")])
def test_kernels_compute_what_the_task_does(name: str) -> None:
    t = task(name, host_target(2))
    native.require_right(t, drawn(t, 3))


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["open_rows", "open_columns"])
def test_kernels_of_open_sizes_take_any_of_them(name: str) -> None:
    t = task(name, host_target(2))
    for trace in drawn(t, 2):
        kernel = t.replay(trace)
        for size in (1, 7, 64, 501):
            x = np.arange(size * 53 if name == "open_rows" else 37 * size, dtype=np.float32)
            x = x.reshape((size, 53) if name == "open_rows" else (37, size)) % 7
            np.testing.assert_array_equal(kernel(x), x.sum(axis=0))


def test_what_reads_a_strip_is_computed_behind_it() -> None:
    """Maxima, exponentials and sums are below the loop of the result's strips, and each goes by in vectors."""
    for name in ("lse", "channels", "normalized"):
        joined = [t for t in drawn(task(name), 8) if t.decisions.get("strips") == "with_reader"]
        assert joined
        for trace in joined:
            nests = [around for around, s in walk(trace.program.body) if isinstance(s, Block)]
            assert len({around[0].var for around in nests}) == 1
            assert all(around[0].kind is LoopKind.PARALLEL for around in nests)
            assert all(around[-1].kind is LoopKind.VECTORIZED for around in nests)


def test_few_strips_of_many_rows_are_cut_into_parts() -> None:
    drawn_parts = {t.decisions["strips"] for t in drawn(task("long"), 8)}
    assert drawn_parts == {"alone", "in_parts"}
    assert not any("strips" in t.decisions for t in drawn(task("plain"), 4))
