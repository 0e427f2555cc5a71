"""Schedules of open computes that were wrong once, here or in other systems; each kernel is run at many sizes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.program import LoopKind, find_loop
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef
from tests.codegen.native import compiled
from tests.compute.native import everywhere
from tests.compute.texts import build, made, std
from tests.open.random_open import check_everywhere

SIZES = [{"M": m} for m in (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 40)]


def task(path: Path, text: str, name: str = "t") -> Task:
    path = path / "t.tsched"
    path.write_text(text)
    return td.load(path, threads=2)[name]


def test_a_cut_over_a_loop_of_one_iteration_does_not_name_it() -> None:
    """The pieces of the last loop begin and end at expressions over the outer ones, one of which is gone."""
    original = made(std("matmul"), None, M=OpenRange(2, 15), N=1, K=3)
    program = apply(original, "split", LoopRef("i"), (3, None), partial=True).program
    program = apply(program, "split", LoopRef("i_0"), (None, 2), partial=True).program
    check_everywhere(original, program, [{"M": m} for m in range(2, 16)], 0, orders=True)


def test_a_loop_of_open_extent_can_be_parallel() -> None:
    """Trap 22: tuning a symbolic extent crashed there in `parallel`."""
    original = made(std("matmul"), None, M=OpenRange(1, 40), N=9, K=5)
    program = apply(original, "parallel", LoopRef("i")).program
    assert find_loop(program, "i")[1].kind is LoopKind.PARALLEL
    check_everywhere(original, program, SIZES, 0, orders=True)
    program = apply(original, "fuse", LoopRef("i"), LoopRef("j")).program
    program = apply(program, "parallel", LoopRef("i_j")).program
    check_everywhere(original, program, SIZES, 0, orders=True)


def test_a_scan_has_a_way_in() -> None:
    """Trap 22: its columns run in parallel and as vectors, its steps in order, for all numbers of both."""
    original = made(std("cumsum"), None, N=OpenRange(1, 9), M=OpenRange(1, 40))
    program = apply(original, "split", LoopRef("i"), (None, 8), partial=True).program
    program = apply(program, "reorder", LoopRef("i_0"), LoopRef("t"), LoopRef("i_1")).program
    program = apply(program, "parallel", LoopRef("i_0")).program
    program = apply(program, "vectorize", LoopRef("i_1")).program
    check_everywhere(original, program, [{"N": n, **m} for n in (1, 2, 9) for m in SIZES], 0, orders=True)


def test_a_size_may_be_told_by_a_product_with_one_that_is_known(tmp_path: Path) -> None:
    text = "compute f(A: f32[M * N], B: f32[N]) -> C: f32[N] { C[j] = B[j] + A[0] }\nschedule s for f {}\n"
    t = task(tmp_path, text + "task t = f(M=1..9, N=1..8) with s\n")
    kernel = t.replay(t.sample(0))
    a, b = np.full(12, 2, np.float32), np.ones(4, np.float32)
    np.testing.assert_array_equal(kernel(a, b), np.full(4, 3, np.float32))
    with pytest.raises(ValueError, match=r"^A: dimension 0 is 13, expected M \* N \(M = 3 from A, N = 4 from B\)$"):
        kernel(np.ones(13, np.float32), b)
    with pytest.raises(ValueError, match=r"^A: M is 10; this kernel takes 1 to 9$"):
        kernel(np.ones(40, np.float32), b)


def test_the_channels_of_a_convolution_may_be_open() -> None:
    """With one group, `co / (CO / groups)` is 0 for every `co`, though `CO` is no number."""
    sizes = {"KH": 3, "KW": 3, "H": 4, "W": 4, "N": 1, "pad": 1}
    original = made(std("conv2d"), None, CI=OpenRange(1, 5), CO=OpenRange(1, 9), **sizes)
    program = apply(original, "cache_write", BlockRef("Y"), "local").program
    program = apply(program, "split", LoopRef("co"), (None, 4), partial=True).program
    check_everywhere(original, program, [{"CI": c, "CO": o} for c in (1, 2, 5) for o in (1, 3, 9)], 0, orders=False)


@pytest.mark.parametrize(
    "at", ["(j + 1) % N", "min(2 * j, N - 1)", "N - 1 - min(j, 3)", "max(j - 2, 0)", "min(4, N - 1)", "j / 2"]
)
def test_a_copy_of_what_is_read_ends_with_the_buffer(at: str) -> None:
    """A box of the largest size, or one that begins at a distance from the end, leaves a buffer of fewer elements."""
    text = f"compute f(V: f32[N]) -> Y: f32[N] {{ let W[j] = V[j] * 2; Y[j] = W[{at}] + V[{at}] }}"
    original = build(text, N=OpenRange(1, 9))
    program = apply(original, "cache_read", BlockRef("Y"), BufferRef("V"), "local").program
    program = apply(program, "cache_read", BlockRef("Y"), BufferRef("W")).program
    check_everywhere(original, program, [{"N": n} for n in (1, 2, 3, 5, 9)], 0, orders=True)


# --- the standard library's space ------------------------------------------------------------------------------------

OPEN_TASKS = {
    "matmul": "matmul(M=1..70, N=33, K=16)",
    "matmul_all": "matmul(M=1..70, N=1..40, K=1..20)",
    "primes": "matmul(M=31, N=101, K=61)",
    "softmax": "softmax(M=1..20, N=1..150)",
    "conv2d": "conv2d_nhwc(N=1..2, H=4..9, W=4..9, CI=3, CO=16, KH=3, KW=3, pad=1)",
    "cumsum": "cumsum(N=1..20, M=1..150)",
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", OPEN_TASKS)
def test_the_default_space_serves_open_and_prime_extents(name: str, tmp_path: Path) -> None:
    of = name.split("_")[0].replace("primes", "matmul")
    made_of = f"use std.ops.{of}\nuse std.cpu.default\ntask t = {OPEN_TASKS[name]} with default\n"
    t = task(tmp_path, made_of)
    low = {d.name: d.low for d in t.program.dims}
    high = {d.name: d.high or 0 for d in t.program.dims}
    middle = {n: min(high[n], max(low[n], 7)) for n in low}
    for seed in range(3):
        trace = t.model.sample(np.random.default_rng(seed))
        assert "parallel(" in trace.text
        check_everywhere(t.program, trace.program, [low, middle, high], seed, orders=False)


# --- what a kernel is called with ------------------------------------------------------------------------------------


def test_what_does_not_fit_is_told_before_anything_runs() -> None:
    kernel = load(compiled(made(std("matmul"), None, M=OpenRange(2, 40), N=9, K=OpenRange(1, 5))))
    b = np.ones((4, 9), np.float32)

    def call(*shapes: tuple[int, ...]) -> None:
        kernel(*(np.ones(s, np.float32) for s in shapes))

    for shapes, message in {
        ((1, 4), b.shape): "A: M is 1; this kernel takes 2 to 40",
        ((41, 4), b.shape): "A: M is 41; this kernel takes 2 to 40",
        ((0, 4), b.shape): "A: M is 0; this kernel takes 2 to 40",
        ((3, 6), (6, 9)): "A: K is 6; this kernel takes 1 to 5",
        ((3, 4), (5, 9)): "B: dimension 0 is 5, expected K (K = 4 from A)",
        ((3, 4), (4, 8)): "B: dimension 1 is 8, expected 9",
        ((4,), b.shape): "A: expected 2 dimensions, [M, K]; got shape (4,)",
        ((3, 4), b.shape, (2, 9)): "C: dimension 0 is 2, expected M (M = 3 from A)",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call(*shapes)
    call((3, 4), (4, 9))
    call((3, 4), (4, 9), (3, 9))


def test_scalars_and_many_dimensions_run_as_they_are() -> None:
    stages = "Y = X + (sum[k] Z[k]); W = argmin[k] Z[k]"
    everywhere(build(f"compute f(X: f32, Z: f32[N]) -> Y: f32, W: i64 {{ {stages} }}", N=5))
    dims = {n: 1 + k % 3 for k, n in enumerate("ABCDEFGH")}
    there, back = ", ".join(dims), ", ".join(reversed(dims))
    stage = f"Y[{back.lower()}] = X[{there.lower()}]"
    everywhere(build(f"compute f(X: f32[{there}]) -> Y: f32[{back}] {{ {stage} }}", **dims))
