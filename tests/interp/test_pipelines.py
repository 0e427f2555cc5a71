"""Pipelines of stencils under the library's rules: what is drawn, what is not, and that the kernels are right."""

from __future__ import annotations

import pytest

from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.expr import constant, loads
from tensorc_dsl.ir.program import Block, For, LoopKind, blocks, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen import native
from tests.drawn import draw, drawn, task_of

TASKS = """
use std.cpu.{default, parallelize_vectorize_unroll, slide, write_out_windows}

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

/// Three planes share what is computed of the first two.
compute planes(X: f32[3, H + 4, W + 4]) -> Y: f32[3, H, W] {
    let G[y, x] = X[0, y, x] + X[1, y, x]
    let B[y in H, x] = G[y, x] + G[y + 1, x] + G[y + 2, x] + G[y + 3, x] + G[y + 4, x]
    let S[y in H, x in W] = sum[k in 5] B[y, x + k]
    Y[c, y in H, x in W] = S[y, x] * X[c, y + 2, x + 2]
}

/// The pixels of an image, its channels last.
compute pixels(X: f32[H + 2, W + 2, 3]) -> Y: f32[H, W, 3] {
    let B[y in H, x, c] = X[y, x, c] + X[y + 1, x, c] + X[y + 2, x, c]
    Y[y in H, x in W, c] = B[y, x, c] + B[y, x + 1, c] + B[y, x + 2, c]
}

/// A bell, one direction after the other: a reduction of reductions, with equal numbers among its taps.
compute bell(X: f32[H + 2, W + 2]) -> Y: f32[H, W] {
    let t[k in 3] = f32(0.5) if k == 1 else 0.25
    let B[y, x in W] = sum[k in 3] t[k] * X[y, x + k]
    Y[y in H, x in W] = sum[k in 3] t[k] * B[y + k, x]
}

/// As `bell`, with two taps of one row exchanged.
compute bent(X: f32[H + 2, W + 2]) -> Y: f32[H, W] {
    let t[k in 3] = f32(0.5) if k == 1 else 0.25
    let B[y, x in W] = sum[k in 3] t[k] * X[y, x + k]
    let u[k in 3] = f32(0.5) if k == 0 else 0.25
    Y[y in H, x in W] = sum[k in 3] u[k] * B[y + k, x]
}

/// Twice as many rows as the stage that is read, which is continued at its border.
compute taller(X: f32[H, W]) -> Y: f32[2 * H, W] {
    let A[y in H, x in W] = exp(X[y, x])
    let B[y in H, x in W] = A[clamp(y - 1, 0, H - 1), x] + A[y, x] * A[clamp(y + 1, 0, H - 1), x]
    Y[y in 2 * H, x in W] = 0.75 * B[y / 2, x] + 0.25 * B[clamp(y / 2 + 2 * (y % 2) - 1, 0, H - 1), x]
}

schedule rows for bell {
    write_out_windows(B)
    write_out_windows(Y)
    let [y, x] = Y.loops
    let [far, near] = split(y, [_, 4], partial=true)
    reorder(far, near, x)
    compute_at(B, near)
    slide(B, near)
    parallelize_vectorize_unroll(root, unroll_steps=[0])
}

/// Each stage is read where it is computed.
compute corners(X: f32[H + 2, W + 2]) -> Y: f32[H, W] {
    let D[y in H, x in W] = X[y + 2, x] - X[y, x]
    let E[y, x] = D[y, x] * D[y, x]
    let F[y, x] = E[y, x] + 1.0
    Y[y, x] = F[y, x] * F[y, x]
}

/// Each channel of an element has its own expression.
compute colours(X: f32[H, W]) -> Y: f32[H, W, 3] {
    let A[y, x] = X[y, x] * X[y, x]
    let B[y, x] = X[y, x] + 1.0
    Y[y, x, c in 3] = A[y, x] if c == 1 else A[y, x] * B[y, x] if x % 2 == 0 else B[y, x]
}

/// A mean of 3 × 3 elements, beyond the border those at it; and a reader of each element, which has no rows to keep.
compute mean(X: f32[H, W]) -> Y: f32[H, W], Z: f32[H, W] {
    let B[y, x] = X[y, clamp(x - 1, 0, W - 1)] + X[y, x] + X[y, clamp(x + 1, 0, W - 1)]
    Y[y, x] = B[clamp(y - 1, 0, H - 1), x] + B[y, x] + B[clamp(y + 1, 0, H - 1), x]
    Z[y, x] = X[y, x] * 2.0
}

task mean = mean(H=37, W=131) with default
task short = mean(H=1, W=1) with default
task narrow = mean(H=3, W=15) with default
task empty = mean(H=0, W=7) with default
/// A chain of windows in both directions, each stage behind a border of its own.
compute chain(X: f32[H, W]) -> Y: f32[H, W] {
    let A[y, x] = exp(X[clamp(y - 1, 0, H - 1), x]) + X[y, clamp(x + 1, 0, W - 1)]
    let B[y, x] = exp(A[y, x]) - A[clamp(y + 1, 0, H - 1), clamp(x - 1, 0, W - 1)]
    Y[y, x] = B[clamp(y - 2, 0, H - 1), x] + B[y, x] * B[clamp(y + 1, 0, H - 1), clamp(x + 2, 0, W - 1)]
}

task chain = chain(H=61, W=509) with default
task corners = corners(H=9, W=37) with default
task colours = colours(H=9, W=67) with default
task taller = taller(H=53, W=141) with default
task rows = bell(H=9, W=37) with rows
task bell = bell(H=9, W=37) with default
task bent = bent(H=9, W=37) with default
task planes = planes(H=21, W=141) with default
task pixels = pixels(H=21, W=141) with default
task window = window(H=9, W=37) with default
task taps = taps(H=9, W=37) with default
task others = others(H=9, W=3) with default
task levels = levels(H=2, W=5) with default
"""


def task(name: str, target: Target, text: str = TASKS) -> Task:
    return task_of("pipelines.tsched", text, name, target)


@pytest.mark.corpus
def test_recomputation_is_counted_and_ends_at_a_limit() -> None:
    """Three levels of a pyramid in one expression took 15 s to compile."""
    t = task("levels", Target(vector_bits=512, cores=2))
    most = [max(len(loads(s.value)) for b in blocks(trace.program) for s in b.body) for trace in drawn(t, 6)]
    assert 16 <= max(most) <= 160
    told = {r for trace in drawn(t, 3) for a in t.space.explain(trace) if a.module == "auto_inline" for r in a.reasons}
    assert "`b.inlined_reads <= reads` is false: `b.inlined_reads` is 256, `reads` is 160" in told


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["window", "taps", "bell"])
def test_a_window_is_written_out_and_vectorized(name: str) -> None:
    """Its elements were summed one by one."""
    t = task(name, host_target(2))
    traces = drawn(t, 3)
    for trace in traces:
        nests = [(around, b) for around, b in walk(trace.program.body) if isinstance(b, Block)]
        assert not any(b.is_reduction for _, b in nests)
        assert all(around[-1].kind is LoopKind.VECTORIZED for around, _ in nests)
        assert isinstance(validate(t.program, trace.program), Valid)
    native.require_right(t, traces)


def test_stages_that_are_read_in_place_are_not_drawn() -> None:
    t = task("corners", host_target(2))
    traces = drawn(t, 3)
    for trace in traces:
        assert all(f"compute_inline({name})" in trace.text for name in "DEF")
        assert "let inline" not in trace.text
    native.require_right(t, traces)


def test_channels_of_their_own_are_unrolled_around_vectors_of_columns() -> None:
    """Vectors ran along three channels."""
    t = task("colours", host_target(2))
    traces = drawn(t, 6)
    kinds = [[loop.kind for loop in nest[-2:]] for trace in traces for nest in [nests_of(trace)["Y"]]]
    assert kinds.count([LoopKind.UNROLLED, LoopKind.VECTORIZED]) >= 2
    for trace in traces:
        assert trace.refused == ()
        assert isinstance(validate(t.program, trace.program), Valid)
    native.require_right(t, traces)


def nests_of(trace: Trace) -> dict[str, tuple[For, ...]]:
    return {s.name: around for around, s in walk(trace.program.body) if isinstance(s, Block)}


def test_a_stage_that_keeps_some_of_its_rows_is_vectorized() -> None:
    """Its elements were computed one by one, and the first rows as well: four times as long as all of the stage at once."""
    t = task("rows", host_target(2))
    (trace,) = drawn(t, 1)
    nests = nests_of(trace)
    assert {"B", "B_first", "Y"} <= nests.keys()
    assert all(around[-1].kind is LoopKind.VECTORIZED for name, around in nests.items() if name != "t")
    native.require_right(t, [trace])


def test_other_terms_of_written_out_windows_are_not_proved_equal() -> None:
    target = Target(vector_bits=512, cores=2)
    want = task("bell", target).program
    for trace in drawn(task("bent", target), 3):
        assert not isinstance(validate(want, trace.program), Valid)


def test_what_is_no_window_stays_a_sum() -> None:
    for trace in drawn(task("others", Target(vector_bits=512, cores=2)), 3):
        assert "expand_reduction" not in trace.text


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["planes", "pixels"])
def test_stages_are_computed_for_each_strip_of_their_reader(name: str) -> None:
    t = task(name, host_target(2))
    traces = drawn(t, 4)
    together = 0
    for trace in traces:
        verify(trace.program)
        assert trace.refused == ()
        nests = nests_of(trace)
        strip = nests["Y"][0]
        if "let strips ~" in trace.text and len(nests) > 1:
            assert strip.kind is LoopKind.PARALLEL
            # The planes go by inside of the strip, so that what they share is computed once.
            assert name == "pixels" or strip.var.startswith("y")
            together += sum(around[0].var == strip.var for stage, around in nests.items() if stage != "Y")
    assert together > 0
    native.require_right(t, traces)
    for trace in traces:
        assert isinstance(validate(t.program, trace.program), Valid)


@pytest.mark.corpus
def test_rows_at_fractions_of_a_step_and_behind_borders_are_kept() -> None:
    """Such stages were computed before all of their readers."""
    t = task("taller", host_target(2))
    traces = [trace for trace in drawn(t, 26) if "rolling_buffer" in trace.text]
    assert len(traces) > 1
    for trace in traces:
        nests = [around for around, b in walk(trace.program.body) if isinstance(b, Block)]
        assert all(around[-1].kind is LoopKind.VECTORIZED for around in nests)
        assert isinstance(validate(t.program, trace.program), Valid)
    native.require_right(t, traces)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["mean", "short", "narrow", "empty"])
def test_rows_that_read_the_same_are_computed_at_once(name: str) -> None:
    """Each row of a stencil loaded all rows of its window."""
    t = task(name, host_target(2))
    traces = drawn(t, 5 if name == "mean" else 2)
    kinds = [tuple(loop.kind for loop in nests_of(trace)["Y"][-2:]) for trace in traces]
    assert kinds.count((LoopKind.UNROLLED, LoopKind.VECTORIZED)) >= (2 if name == "mean" else 0)
    for trace in traces:
        assert trace.refused == ()
        assert all(loop.kind is not LoopKind.UNROLLED for loop in nests_of(trace)["Z"])
        assert isinstance(validate(t.program, trace.program), Valid)
    native.require_right(t, traces)


def test_rows_are_computed_at_once_as_far_as_registers_and_code_go() -> None:
    few, many = (Target(vector_bits=bits, cores=2) for bits in (256, 512))
    for target, most in ((few, 16), (many, 32)):
        for trace in drawn(task("mean", target), 8):
            for around, b in walk(trace.program.body):
                if isinstance(b, Block) and around[-2:][0].kind is LoopKind.UNROLLED:
                    vectors = (constant(around[-1].extent) or 0) * 32 // target.vector_bits
                    assert vectors == 1 or (vectors == 2 and 3 * vectors <= most)


@pytest.mark.corpus
def test_strips_and_tiles_at_once_compute_what_they_share_with_their_neighbours() -> None:
    """Halide's overlapped tiles, and strips that each begin a window of rows, for one row or several at once."""
    t = task("chain", host_target(2))
    found: dict[tuple[bool, bool, bool], Trace] = {}
    for n in range(30):
        trace = draw(t, n)
        nests = nests_of(trace)
        own = [name for name, around in nests.items() if around[0] == nests["Y"][0] and name != "Y"]
        if nests["Y"][0].kind is LoopKind.PARALLEL and own:
            rolled = any(name.endswith("_first") for name in own)
            found.setdefault((rolled, '"tiles"\n' in trace.text, '"together"\n' in trace.text), trace)
        if len(found) == 8:
            break
    assert len(found) == 8
    for trace in found.values():
        assert trace.refused == ()
        assert isinstance(validate(t.program, trace.program), Valid)
    native.require_right(t, [trace for (rolled, *_), trace in found.items() if rolled])
