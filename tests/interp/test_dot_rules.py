"""`std.cpu.dots`: products of rows with rows are dot products in lanes, of tiles that share what they load."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.program import Block, LoopKind, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.expansion import stream
from tests.codegen import native
from tests.drawn import drawn, task_of

TASKS = """
use std.cpu.{default}
use std.ops.{matmul}

compute rows(A: f32[M, N], x: f32[N]) -> y: f32[M] { y[i] = sum[n] A[i, n] * x[n] }
compute farthest(A: f64[M, N], x: f64[N]) -> y: f64[M] { y[i] = max[n] abs(A[i, n] - x[n]) }
compute counts(X: i32[M, N]) -> C: i32[64] { C[b in 64] = sum[i, j] (1 if X[i, j] == i32(b) else 0) }
compute dense(A: f32[M, K], W: f32[N, K], b: f32[N]) -> C: f32[M, N] { C[i, j] = (sum[k] A[i, k] * W[j, k]) + b[j] }
compute batch(A: f16[B, M, K], W: f16[B, N, K]) -> C: f32[B, M, N] { C[b, i, j] = sum[k] f32(A[b, i, k]) * f32(W[b, j, k]) }
compute bytes(A: i8[M, P, K], W: i8[N, P, K]) -> C: i32[M, N] {
    C[i, j] = sum[p, k] i32(A[i, p, k]) * i32(W[j, p, k])
}
compute smooth(X: f32[N], W: f32[K]) -> Y: f32[L] where L = N - K + 1 {
    Y[i] = sum[k] X[i + k] * W[k]
}

task square = rows(M=67, N=131) with default
task one_term = rows(M=5, N=1) with default
task no_term = rows(M=5, N=0) with default
task one_row = rows(M=1, N=131) with default
task whole = rows(M=64, N=128) with default
task doubles = farthest(M=19, N=61) with default
task few = dense(M=3, N=29, K=67) with default
task one = dense(M=1, N=29, K=67) with default
task many = dense(M=71, N=97, K=33) with default
task batch = batch(B=3, M=5, N=7, K=53) with default
task bytes = bytes(M=3, P=2, N=5, K=71) with default
task product = matmul(M=33, N=37, K=19) with default
task window = smooth(N=131, K=37) with default
task open_counts = counts(M=0..20, N=0..20) with default
task open = dense(M=1..64, N=29, K=67) with default
task open_terms = rows(M=0..67, N=0..131) with default
task open_sides = dense(M=1..64, N=1..29, K=0..67) with default
"""
NAMES = [line.split()[1] for line in TASKS.splitlines() if line.startswith("task")]
OPEN = ("open", "open_terms", "open_sides")
DOTS = ("square", "whole", "doubles", "few", "one", "many", "batch", "bytes")
MACHINE = Target(vector_bits=512, cores=2, features="+avx2,+fma")


def task(name: str, target: Target = MACHINE) -> Task:
    return task_of("dots.tsched", TASKS, name, target)


@pytest.mark.corpus
@pytest.mark.parametrize("name", NAMES)
def test_the_rule_is_for_products_of_rows(name: str) -> None:
    t = task(name)
    attempts = t.space.explain(t.space.sample(stream(0, name, "test")))
    assert any(not a.reasons for a in attempts if a.module == "dot_products") == (name in (*DOTS, *OPEN))


@pytest.mark.corpus
@pytest.mark.parametrize("name", DOTS)
def test_draws_apply_replay_and_compute_what_the_task_does(name: str) -> None:
    t = task(name, host_target(2))
    traces = [x for x in drawn(t, 8) if x.decisions["dots"]][:2]
    assert traces
    for trace in traces:
        assert trace.refused == ()
        verify(trace.program)
        assert t.expand(Source("trace", trace.text)).program == trace.program
    native.require_right(t, traces)


@pytest.mark.corpus
@pytest.mark.parametrize("name", OPEN)
def test_rows_columns_and_terms_may_be_open(name: str) -> None:
    t = task(name, host_target(2))
    rng = np.random.default_rng(0)
    for trace in [x for x in drawn(t, 8) if x.decisions["dots"]][:3]:
        assert t.verify(trace) == Valid()
        kernel = t.replay(trace)
        for m, n, k in ((1, 1, 0), (1, 29, 1), (2, 3, 8), (7, 16, 31), (8, 17, 32), (33, 28, 66), (64, 29, 67)):
            n, k = (29, 67) if name == "open" else (n, k)
            a, w, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (n, k), (n,)))
            given, right = ((a, w[0].copy()), a @ w[0]) if name == "open_terms" else ((a, w, b), a @ w.T + b)
            assert np.array_equal(kernel(*given), right), (m, n, k, trace.text)


def test_a_tile_shares_what_it_loads() -> None:
    """The results of a tile are unrolled below the loop over the terms, whose lanes are a vector."""
    found = [x for x in drawn(task("few"), 8) if x.decisions["dots"] and x.decisions["near"] in (2, 4, 8)]
    assert found
    for trace in found:
        around = next(
            around for around, s in walk(trace.program.body) if isinstance(s, Block) and s.name.endswith("_rf")
        )
        kinds = [x.kind for x in around]
        assert kinds[0] is LoopKind.PARALLEL
        assert kinds[-3:] == [LoopKind.UNROLLED, LoopKind.UNROLLED, LoopKind.VECTORIZED]
        assert LoopKind.SERIAL in kinds
