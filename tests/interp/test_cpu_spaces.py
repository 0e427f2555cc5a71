"""The library's spaces on small tasks of odd sizes: draws apply, traces replay, kernels compute what their tasks do."""

from __future__ import annotations

import pytest

from tensorc_dsl import handlers
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.expr import constant, free_vars
from tensorc_dsl.ir.program import Block, For, LoopKind, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.tuning.search.space import neighbours
from tests.codegen import native
from tests.drawn import drawn, task_of

TASKS = """
use std.cpu.{default}
use std.cpu.x86
use std.cpu.inline
use std.cpu.parallel
use std.cpu.reduction
use std.cpu.tiling
use std.ops

/// Every draw of a module at its most frequent.
space much for llvm {
    cut_tails(chance=100)
    multi_level_tiling(structure="SSRSRS", cached=50, packed=50, copied=40, reordered=90)
    auto_inline_after_tiling
    add_parallel_rfactor
    parallelize_vectorize_unroll
}

compute layers(X: f32[M, K], A: f32[K, H], B: f32[H, N]) -> Y: f32[M, N] {
    let c[h in H] = f32(2)
    let Z = matmul(X, A)
    let R[i, j] = max(Z[i, j], c[j])
    Y = matmul(R, B)
}

compute turned(X: f32[M, N]) -> Y: f32[N, M] {
    let R[i, j] = exp(X[i, j])
    Y[j, i] = R[i, j] + 1.0
}

compute signed_bytes(A: i8[M, K], B: i8[K, N]) -> C: i32[M, N] { C[i, j] = sum[k] i32(A[i, k]) * i32(B[k, j]) }
compute bytes(A: u8[M, K], B: i8[N, K], s: f32[N]) -> C: f32[M, N] {
    let S[i, j] = sum[k] i32(A[i, k]) * i32(B[j, k])
    C[i, j] = f32(S[i, j]) * s[j]
}

compute byte_conv(X: u8[H, W, C], F: i8[R, S, C, K]) -> Y: i32[H - R + 1, W - S + 1, K] {
    Y[h in H - R + 1, w in W - S + 1, k] = sum[r, s, c] i32(X[h + r, w + s, c]) * i32(F[r, s, c, k])
}

compute halves(A: bf16[M, K], B: bf16[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j])
}

compute norm(X: f32[N]) -> Y: f32[1] {
    Y[i in 1] = sum[k] X[k] * X[k]
}

compute turned_2(A: f32[M, K], B: f32[N, K]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[j, k]
}

compute turned_3(A: f32[G, M, K], B: f32[G, N, K], D: f32[N, G, K]) -> C: f32[G, M, N] {
    C[g, i, j] = sum[k] A[g, i, k] * B[g, j, k] * D[j, g, k]
}

compute turned_4(A: f32[G, H, M, K], B: f32[N, G, H, K], D: f32[G, N, H, K], E: f32[G, H, N, K]) -> C: f32[G, H, M, N] {
    C[g, h, i, j] = sum[k] A[g, h, i, k] * B[j, g, h, k] * D[g, j, h, k] * E[g, h, j, k]
}

task product = matmul(M=33, N=37, K=19) with default
task much_product = matmul(M=33, N=37, K=19) with much
task convolution = conv2d_nhwc(N=1, H=9, W=8, CI=5, CO=17, KH=3, KW=3, stride=2, pad=1) with default
task layer = dense(M=17, K=13, N=40) with default
task rows = softmax(M=13, N=35) with default
task two = layers(M=9, K=12, H=20, N=16) with default
task transposed = turned(M=13, N=20) with default
task sums = cumsum(N=12, M=20) with default
task best = argmax(M=9, N=20) with default
task long = norm(N=100) with much
task huge = norm(N=4000001) with default
task quantized = bytes(M=9, N=33, K=22) with vnni
task quantized_primes = bytes(M=29, N=260, K=22) with vnni
task signed = signed_bytes(M=9, N=33, K=22) with vnni
task quantized_conv = byte_conv(H=6, W=6, C=8, R=2, S=3, K=32) with vnni
task summed = halves(M=9, N=33, K=22) with bf16
task other = matmul(M=9, N=20, K=11) with vnni
task turned_2 = turned_2(M=7, N=48, K=9) with default
task turned_3 = turned_3(G=3, M=7, N=48, K=5) with default
task turned_4 = turned_4(G=2, H=3, M=5, N=32, K=7) with default
task transforms = conv2d_winograd_2x2_nhwc(N=1, H=5, W=4, CI=3, CO=5, pad=1) with default
task narrow = conv2d_transpose_nhwc(N=1, H=5, W=17, CI=4, CO=3, KH=4, KW=4, stride=2, pad=1) with default
task narrow_rows = conv2d_nhwc(N=1, H=19, W=7, CI=5, CO=2, KH=3, KW=3, pad=1) with default
task small_batch = batch_matmul(G=33, M=5, N=3, K=4) with default
task uneven = matmul(M=11, N=93, K=7) with default
task deep = matmul(M=5, N=48, K=5003) with default
"""
NAMES = [line.split()[1] for line in TASKS.splitlines() if line.startswith("task")]
MACHINE = Target(vector_bits=512, cores=2, features="+avx2,+fma,+avx512vnni,+avx512bf16")
"""One on which every rule applies, so that the tests see them wherever they run."""


def task(name: str, target: Target = MACHINE) -> Task:
    return task_of("cpu_spaces.tsched", TASKS, name, target)


@pytest.mark.corpus
@pytest.mark.parametrize("name", NAMES)
def test_draws_apply_and_replay(name: str) -> None:
    t = task(name)
    for trace in drawn(t, 3):
        assert trace.refused == ()
        verify(trace.program)
        again = t.expand(Source("trace", trace.text))
        assert again.text == trace.text
        assert again.program == trace.program


@pytest.mark.corpus
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compute_what_the_task_does(name: str) -> None:
    t = task(name, host_target(2))
    native.require_right(t, drawn(t, 2))


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["product", "rows", "two", "quantized"])
def test_every_draw_moves_within_its_bounds(name: str) -> None:
    """Traps 19 and 20: a move changes the draw that it was made for, and a repaired decision is in its draw's support."""
    t = task(name)
    trace = drawn(t, 1)[0]
    movable = {d.name for d in trace.open_draws if d.distribution.size() > 1}
    assert {n for d in neighbours(trace) for n in d if d[n] != trace.decisions[n]} == movable
    one_each = {next(n for n in d if d[n] != trace.decisions[n]): d for d in neighbours(trace)}
    for moved, decisions in one_each.items():
        try:
            other = t.space.replay(decisions, stream(0, name, moved))
        except ScheduleRefusal:
            continue
        assert other.decisions[moved] == decisions[moved]
        assert all(d.distribution.contains(d.decision) for d in other.draws)


@pytest.mark.parametrize("name", ["quantized", "summed"])
def test_machines_without_the_instruction_tile_as_usual(name: str) -> None:
    plain = Target(vector_bits=256, cores=2, features="+avx2,+fma")
    assert all("tensorize" in trace.text for trace in drawn(task(name), 3))
    assert not any("tensorize" in trace.text for trace in drawn(task(name, plain), 3))


@pytest.mark.corpus
def test_prime_numbers_of_instructions_are_padded_to_tiles() -> None:
    """29 rows and 17 panels have no tile of several accumulators; 30 and 18 have, and 32 and 20 are too many more."""
    assert {t.decisions["several"] for t in drawn(task("quantized_primes"), 12)} == {1, 6}
    assert not any("several" in t.decisions for t in drawn(task("quantized"), 3))


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["turned_2", "turned_3", "turned_4"])
def test_operands_whose_lanes_lie_apart_are_packed(name: str) -> None:
    t = task(name)
    traces = drawn(t, 8)
    turned = [b.name for b in t.program.inputs if b.name != "A"]
    packed = [n for trace in traces for n in turned if f"transform_layout({n}_global" in trace.text]
    assert len(packed) > len(traces) * len(turned) / 2
    for trace in traces:
        # Along a batch there is nothing to hold in registers.
        tiles = [d.decision for d in trace.draws if d.name.startswith("factors")]
        for tile in tiles[: len(t.program.outputs[0].shape) - 2]:
            assert isinstance(tile, tuple) and tile[-1] == 1


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["narrow", "narrow_rows"])
def test_vectors_of_a_narrow_block_run_along_its_longest_loop(name: str) -> None:
    wide = 0
    for trace in drawn(task(name), 8):
        nests = {s.name: around for around, s in walk(trace.program.body) if isinstance(s, Block)}
        block = "Z" if name == "narrow" else "Y"
        wide += nests[block][-1].var.startswith("qw" if name == "narrow" else "oh")
        if f"reindex({block}, {block})" in trace.text:
            assert nests[block][-1].kind is LoopKind.VECTORIZED
            turned = "(a, c, j, k)" if name == "narrow" else "(a, j, c, k)"
            assert f"{turned} -> (a, c, k, j)" in trace.text
    assert wide >= 5


def test_vectors_of_a_batch_of_small_products_run_along_their_rows() -> None:
    """All operands would have to be turned, and each is read in one product only."""
    assert sum(trace.decisions["vectors"] == "along_last" for trace in drawn(task("small_batch"), 8)) >= 6


def test_rows_of_no_whole_vectors_end_in_a_part_of_a_tile() -> None:
    for trace in drawn(task("uneven"), 8):
        if "loop_partition" not in trace.text:
            assert "split(j, [_, inner[0], inner[1]], partial=true)" in trace.text
            assert (
                16
                <= next(d.decision[-1] for d in trace.draws if isinstance(d.decision, tuple) and d.name == "inner")
                <= 64
            )


def test_sums_too_long_for_the_cache_are_made_in_pieces() -> None:
    structures = {trace.text.count(", parts=4") for trace in drawn(task("deep"), 12)}
    assert structures == {0, 2}
    assert not any(", parts=4" in trace.text for trace in drawn(task("product"), 4))


def test_an_epilogue_is_mostly_part_of_the_tile() -> None:
    traces = [t for t in drawn(task("layer"), 8) if "epilogue" in t.decisions]
    assert sum("reverse_compute_inline(Y)" in t.text for t in traces) > len(traces) / 2
    whole = next(t for t in traces if t.decisions["epilogue"])
    assert any(d["epilogue"] is False for d in neighbours(whole))


def test_the_matrices_of_a_winograd_convolution_are_numbers_in_its_transforms() -> None:
    t = task("transforms")
    made = {"first", "last", "x", "inner", "In", "Out"}
    assert made <= {b.name for b in t.program.buffers}
    for trace in drawn(t, 4):
        assert made.isdisjoint(b.name for b in trace.program.buffers)
        nests = {s.name: around for around, s in walk(trace.program.body) if isinstance(s, Block)}
        for name in ("Y_V", "Y_R"):
            # The axes of the matrices, then those of the sums: with them a factor is known where code is made.
            assert all(loop.kind is LoopKind.UNROLLED for loop in nests[name][-5:-1])


def test_a_long_sum_in_f32_is_made_in_parts_whatever_is_drawn() -> None:
    spread = 0
    for trace in drawn(task("huge"), 6):
        assert "rfactor" in trace.text
        parts = constant(trace.program.buffer("Y_rf").shape[0])
        assert parts is not None and 4000001 / parts <= 65536
        at_once = [s for _, s in walk(trace.program.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL]
        spread += any(constant(loop.extent) == parts for loop in at_once)
    # Not the loop over the one result is spread then, but that over the parts.
    assert spread >= 2


def test_a_reduction_of_open_length_is_never_refused() -> None:
    text = TASKS.replace("norm(N=4000001)", "norm(N=1..4000001)")
    t = task_of("cpu_spaces.tsched", text, "huge", MACHINE)
    assert not any("reduce_in_parts" in trace.text for trace in drawn(t, 8))


def test_transforms_of_four_by_four_are_straight_code() -> None:
    t = task("transforms")
    narrow = handlers.condition(t.space, {"width": 16, "width_1": 16})
    lowered = t.lowered_text(handlers.seed(narrow, 0)())
    steps = [line.strip() for line in lowered.splitlines() if " in 0 .. 4 {" in line or " in 0 .. 2 {" in line]
    transform = [s for s in steps if s.split(" for ")[-1].split("_")[0].split()[0] in ("a", "b")]
    assert transform
    assert all(s.startswith("unrolled ") for s in transform), lowered


def test_parts_of_cut_columns_have_vectors_along_columns() -> None:
    """The loop that is cut is the last one of each part again: vectors are contiguous in the product and its operand."""
    t = task("much_product")
    found: set[str] = set()
    for seed in range(4):
        for around, s in walk(t.sample(seed).program.body):
            if not isinstance(s, Block) or s.name not in ("C", "C_1"):
                continue
            if around[-1].kind is LoopKind.VECTORIZED and constant(around[-1].extent) != 1:
                assert around[-1].var in free_vars(next(it.binding for it in s.iters if it.name == "vj"))
                found.add(s.name)
    assert found == {"C", "C_1"}
