"""`std.cpu.product`: products and convolutions in the five loops, whose tiles follow from facts of the target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorc_dsl import handlers
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.program import blocks
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.schedule.trace.distribution import Listed
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.expansion import stream
from tests.codegen import native
from tests.drawn import task_of

TASKS = """
use std.cpu.{default}
use std.ops.{batch_matmul, conv1d_nlc, conv2d_nhwc, conv3d_ndhwc, matmul}

compute turned(A: f32[K, M], B: f32[N, K]) -> C: f32[M, N] { C[i, j] = sum[k] A[k, i] * B[j, k] }
compute doubles(A: f64[M, K], B: const f64[K, N]) -> C: f64[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
compute layer(X: f32[M, K], W: const f32[K, N], b: f32[N]) -> Y: f32[M, N] {
    let Z = matmul(X, W)
    Y[i, j] = max(Z[i, j] + b[j], 0.0)
}
compute image_layer(X: f32[1, H, W, C], F: const f32[C, D], b: f32[D], R: f32[1, H, W, D]) -> Y: f32[1, H, W, D] {
    let Z[n in 1, h, w, d] = sum[c] X[n, h, w, c] * F[c, d]
    let S[n in 1, h, w, d] = Z[0, h, w, d] + b[d]
    let A[n in 1, h, w, d] = S[0, h, w, d] + R[0, h, w, d]
    Y[n in 1, h, w, d] = max(A[0, h, w, d], 0.0)
}
compute each(X: f32[H, W, C], F: f32[3, 3, C]) -> Y: f32[H - 2, W - 2, C] {
    Y[h in H - 2, w in W - 2, c] = sum[r, s] X[h + r, w + s, c] * F[r, s, c]
}

task product = matmul(M=37, N=45, K=151) with default
task turned = turned(M=37, N=45, K=151) with default
task doubles = doubles(M=19, N=40, K=65) with default
task layer = layer(M=33, N=70, K=129) with default
task batch = batch_matmul(G=3, M=17, N=40, K=70) with default
task image = conv2d_nhwc(N=1, H=9, W=11, CI=7, CO=37, KH=3, KW=3, pad=1, stride=2) with default
task pixels = conv2d_nhwc(N=2, H=5, W=7, CI=33, CO=64, KH=1, KW=1) with default
task line = conv1d_nlc(N=1, L=29, CI=5, CO=19, KL=5, pad=2, dilation=2) with default
task frames = conv1d_nlc(N=1, L=4112, CI=1, CO=34, KL=32, stride=16) with default
task volume = conv3d_ndhwc(N=1, D=2, H=3, W=5, CI=3, CO=17, KD=3, KH=3, KW=3, pad=1) with default
task border = conv2d_nhwc(N=1, H=3, W=7, CI=13, CO=37, KH=5, KW=5, pad=2) with default
task narrow = matmul(M=37, N=7, K=151) with default
task few = matmul(M=1, N=64, K=151) with default
task lines = image_layer(H=56, W=14, C=24, D=64) with default
task no_term = matmul(M=37, N=45, K=0) with default
task open = matmul(M=1..64, N=45, K=151) with default
task open_columns = matmul(M=37, N=1..64, K=151) with default
task open_sum = matmul(M=37, N=45, K=0..151) with default
task open_sides = turned(M=0..64, N=0..64, K=0..64) with default
task open_pixels = conv2d_nhwc(N=1, H=1..9, W=1..9, CI=1..13, CO=8..37, KH=3, KW=3, pad=1) with default
task channels = each(H=9, W=11, C=32) with default
"""
IN_LOOPS = ("product", "turned", "doubles", "layer", "batch", "image", "pixels", "line", "frames", "volume", "border")
OTHERS = ("narrow", "few", "no_term", "channels")
SMALL = {"l1": 4096, "l2": 16384}
"""Caches of which these products take much: their sums have pieces, and their rows blocks."""


def task(name: str, target: Target) -> Task:
    return task_of("products.tsched", TASKS, name, replace(target, **SMALL))


def in_loops(t: Task, count: int) -> list[Trace]:
    model = handlers.condition(t.model, {"tail": "guarded", "five_loops": True})
    return [model.sample(stream(n, t.name, "test")) for n in range(count)]


@pytest.mark.corpus
@pytest.mark.parametrize("name", IN_LOOPS)
def test_draws_apply_replay_and_compute_what_the_task_does(name: str) -> None:
    t = task(name, host_target(2))
    traces = in_loops(t, 2)
    for trace in traces:
        assert "column_cut" in trace.decisions
        assert trace.refused == ()
        verify(trace.program)
        assert t.expand(Source("trace", trace.text)).program == trace.program
    native.require_right(t, traces)


OPEN = {
    "open": [{"M": m, "N": 45, "K": 151} for m in (1, 2, 7, 13, 31, 64)],
    "open_columns": [{"M": 37, "N": n, "K": 151} for n in (1, 2, 7, 8, 31, 33, 64)],
    "open_sum": [{"M": 37, "N": 45, "K": k} for k in (0, 1, 2, 75, 76, 77, 150, 151)],
    "open_sides": [
        {"M": m, "N": n, "K": k}
        for m, n, k in ((0, 3, 3), (1, 1, 1), (3, 0, 7), (5, 33, 0), (13, 17, 1), (31, 9, 63), (64, 64, 64))
    ],
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", OPEN)
def test_rows_columns_and_sums_may_be_open(name: str) -> None:
    t = task(name, host_target(2))
    rng = np.random.default_rng(0)
    for trace in in_loops(t, 3):
        assert "column_cut" in trace.decisions and trace.refused == ()
        assert t.verify(trace) == Valid()
        kernel = t.replay(trace)
        for at in OPEN[name]:
            m, n, k = at["M"], at["N"], at["K"]
            a, b = rng.integers(-3, 4, (m, k)).astype(np.float32), rng.integers(-3, 4, (k, n)).astype(np.float32)
            given = (a.T.copy(), b.T.copy()) if name == "open_sides" else (a, b)
            assert np.array_equal(kernel(*given), a @ b), (at, trace.text)


@pytest.mark.corpus
def test_all_sizes_of_a_convolution_may_be_open() -> None:
    t = task("open_pixels", host_target(2))
    rng = np.random.default_rng(0)
    for trace in in_loops(t, 3):
        assert "column_cut" in trace.decisions and trace.refused == ()
        kernel = t.replay(trace)
        for h, w, ci, co in ((1, 1, 1, 8), (2, 9, 5, 9), (9, 3, 13, 33), (7, 8, 12, 37), (9, 9, 1, 16)):
            x, f = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((1, h, w, ci), (3, 3, ci, co)))
            padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            right = sum(padded[:, r : r + h, s : s + w] @ f[r, s] for r in range(3) for s in range(3))
            assert np.array_equal(kernel(x, f), right), (h, w, ci, co, trace.text)


def test_rows_that_a_window_moves_along_are_read_in_place() -> None:
    """Where `height` rows lie side by side, a tap of a row would be found by a quotient in each step of the sum."""
    target = Target(vector_bits=256, cores=2, features="+avx2,+fma")
    assert all("block" in trace.decisions for trace in in_loops(task("batch", target), 4))
    for name in ("line", "frames"):
        for trace in in_loops(task(name, target), 8):
            assert "column_cut" in trace.decisions and "block" not in trace.decisions
            assert "X_global" not in trace.text


@pytest.mark.parametrize("name", OTHERS)
def test_other_computes_are_left_to_other_rules(name: str) -> None:
    t = task(name, Target(vector_bits=512, cores=2, features="+avx2,+fma"))
    assert not any("column_cut" in trace.decisions for trace in in_loops(t, 1))


@pytest.mark.parametrize(("bits", "registers"), [(256, 16), (512, 32)])
def test_the_registers_hold_the_sums_a_row_of_the_panel_and_an_element(bits: int, registers: int) -> None:
    t = task("product", Target(vector_bits=bits, cores=2, features="+avx2,+fma"))
    assert t.target.vector_registers == registers
    for trace in in_loops(t, 8):
        columns, height = trace.decisions["columns"], trace.decisions["height"]
        assert isinstance(columns, int)
        assert isinstance(height, int)
        assert columns * height + columns + 1 <= registers


def test_pieces_of_a_sum_are_added_up_and_its_rows_packed() -> None:
    t = task("product", Target(vector_bits=256, cores=2, features="+avx2,+fma"))
    traces = in_loops(t, 12)
    assert {trace.decisions["block"] for trace in traces} == {"in_place", "before", "piece"}
    assert all(("accumulate_at" in trace.text) == (trace.decisions["count"] != 1) for trace in traces)
    assert any(trace.decisions["count"] != 1 for trace in traces)


def test_the_border_of_an_image_is_left_out() -> None:
    t = task("border", Target(vector_bits=512, cores=2, features="+avx2,+fma"))
    traces = in_loops(t, 8)
    assert {trace.decisions["height"] for trace in traces} > {7}
    for trace in traces:
        whole = trace.decisions["height"] == 7
        assert ("skip_zeros(Y_part, kh, kw)" in trace.text or "skip_zeros(Y, kh, kw)" in trace.text) == whole
        assert ("unroll(kw)" in trace.text) == whole
        assert ", kh" in trace.text.partition("skip_zeros")[2]


def test_tiles_and_cuts_take_about_as_long_as_the_best() -> None:
    t = task("product", Target(vector_bits=512, cores=2, features="+avx2,+fma"))
    for trace in in_loops(t, 8):
        columns, height = trace.decisions["columns"], trace.decisions["height"]
        assert isinstance(columns, int)
        assert isinstance(height, int)
        assert columns * height >= 8, "a tile hides the latency of its sums"


def values(trace: Trace, draw: str) -> list[object]:
    """What a draw could have been."""
    (found,) = (d.distribution for d in trace.draws if d.name == draw)
    assert isinstance(found, Listed)
    return list(found.values_listed())


def test_what_follows_a_product_is_one_stage_that_reads_registers() -> None:
    """A bias, a residual and a rectifier are read in place, so nothing is drawn about them. Where the sums of a tile are
    complete, all of them belong to it; else they may follow each block."""
    t = task("lines", Target(vector_bits=512, cores=2, features="+avx2,+fma"))
    model = handlers.condition(t.model, {"five_loops": True, "count": 1})
    traces = [model.sample(stream(n, t.name, "test")) for n in range(16)]
    assert not any("inline" in d for trace in traces for d in trace.decisions)
    whole = [trace for trace in traces if trace.decisions["epilogue"]]
    assert len(whole) > 8
    for trace in whole:
        assert "follow" not in trace.decisions
        assert [b.name for b in blocks(trace.program) if any(w.buffer == "Y" for w in b.body)] == ["Z_write"]


def test_products_with_constants_are_mostly_in_the_five_loops() -> None:
    """Panels of constants cost a call nothing, however short the sums are."""
    target = Target(vector_bits=512, cores=2, features="+avx2,+fma")
    for name, mostly in (("lines", True), ("batch", False)):
        trace = task_of("products.tsched", TASKS, name, replace(target, l1=65536)).sample(0)
        (chance,) = (d.distribution for d in trace.draws if d.name == "five_loops")
        assert isinstance(chance, Listed)
        assert (chance.weights[0] >= 80) == mostly


def test_blocks_of_lines_fit_the_second_cache() -> None:
    """With what is read beside them: a panel goes by for each line."""
    target = Target(vector_bits=512, cores=2, features="+avx2,+fma")
    line = 14 * 4 * (24 + 64 + 64)
    for room, least in ((16 * line, 4), (60 * line, 1)):
        t = task_of("products.tsched", TASKS, "lines", replace(target, l1=65536, l2=room * 100 // 60))
        (trace,) = in_loops(t, 1)
        assert values(trace, "row_cut") == [n for n in (1, 2, 4, 8) if n >= least]


def test_panels_of_constants_are_fetched_before_they_are_read() -> None:
    """However few they are: between two calls of a model its other weights go by."""
    target = Target(vector_bits=512, cores=2, features="+avx2,+fma", l1=65536, l2=1 << 30)
    for name, far in (("lines", True), ("batch", False)):
        model = handlers.condition(task_of("products.tsched", TASKS, name, target).model, {"five_loops": True})
        for n in range(4):
            trace = model.sample(stream(n, name, "test"))
            assert ("next" in trace.decisions) == far
