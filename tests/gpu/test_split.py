"""Reductions in parts by blocks of their own (split-K): exact in each order of threads, and enough blocks for the device."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, collectives_in
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.memory import aligned_copy
from tensorc_dsl.backend.protocol import ORDERS
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import stored_dtype
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import ptx, whole
from tests.gpu.tensor_cores import DRAWS, drawn, whole_numbers
from tests.programs import proof_fault
from tests.stdlib.gpu_checks import target_of_few, task

CORES = 108
"""The multiprocessors of `sm_80`."""

PRODUCTS = {
    "i32": ("any_product(M=8, N=4, K=512, T=i32, Acc=i32)", 2),
    "f32, odd": ("any_product(M=5, N=3, K=517, T=f32, Acc=f32)", 4),
    "f32, turned": ("any_turned(M=4, N=8, K=1024, T=f32, Acc=f32)", 8),
}


def blocks(k: DeviceKernel) -> int:
    """The blocks of a kernel's grid."""
    return prod(constant(e) or 0 for e in k.grid)


@pytest.mark.corpus
@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_in_parts_is_exact_in_each_order_of_threads(case: str, tmp_path: Path) -> None:
    text, parts = PRODUCTS[case]
    t = task(tmp_path, text, "default")
    inputs, (a, b) = whole_numbers(t.program)
    split = t.drawn_from(condition(t.model, {"in_parts": True, "parts": parts}))
    for seed in range(max(2, DRAWS)):
        found = lower_device(whole(split.sample(seed)).program)
        first, _ = found.kernels
        assert blocks(first) % parts == 0
        fault, outputs = emulated(found, t.program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["C"], a.T @ b.T if "turned" in text else a @ b)


@pytest.mark.corpus
def test_the_parts_of_a_product_are_on_tensor_cores(tmp_path: Path) -> None:
    t = task(tmp_path, "half_matmul(M=16, N=8, K=512)", "tensor_core")
    inputs, (a, b) = whole_numbers(t.program)
    for _, found in drawn(t, DRAWS, {"in_parts": True, "parts": 4, "tensor_core": True}):
        *padded, first, second = found.kernels
        assert [any(collectives_in(k.body)) for k in (*padded, first, second)] == [False] * len(padded) + [True, False]
        assert "mma.sync" in ptx(found, "sm_80")
        fault, outputs = emulated(found, t.program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["C"], a @ b)


@pytest.mark.corpus
@pytest.mark.parametrize("parts", [32, 512])
def test_the_place_of_the_greatest_is_found_in_parts(parts: int, tmp_path: Path) -> None:
    """Numbers of which many are equal, so the lowest place is in any part."""
    t = task(tmp_path, "argmax(M=3, N=8209, T=i32)", "default")
    found = lower_device(whole(t.drawn_from(condition(t.model, {"in_parts": True, "parts": parts})).sample(0)).program)
    x = np.random.default_rng(parts).integers(0, 40, (3, 8209)).astype(np.int32)
    fault, outputs = emulated(found, t.program, {"X": x})
    assert fault == "" and len(found.kernels) == 2
    for out in outputs:
        np.testing.assert_array_equal(out["I"], x.argmax(1))


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("any_product(M=3, N=5, K=1..100000, T=i32, Acc=i32)", {"A": (3, 0), "B": (0, 5), "C": (3, 5)}),
        ("argmax(M=3, N=1..100000, T=i32)", {"X": (3, 0), "I": (3,)}),
    ],
)
def test_parts_of_a_sum_of_open_length_are_right_at_each_length(
    text: str, arrays: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    t = task(tmp_path, text, "default")
    trace = whole(t.drawn_from(condition(t.model, {"in_parts": True})).sample(1))
    assert proof_fault(t.program, trace.program) == ""
    kernels = emulation(lower_device(trace.program))
    for n in (1, 31, 257, 3001):
        rng, given = np.random.default_rng(n), dict[str, np.ndarray]()
        for b in t.program.params:
            shape = tuple(n if m == 0 else m for m in arrays[b.name])
            given[b.name] = aligned_copy(rng.integers(-9, 9, shape).astype(stored_dtype(b.dtype)))
        (dim,) = t.program.dims
        for order in ORDERS:
            assert kernels.run(given, {dim.name: n}, order) == ""
            expected = given["A"] @ given["B"] if "A" in given else given["X"].argmax(1)
            np.testing.assert_array_equal(given["C" if "A" in given else "I"], expected)


def most_blocks(t: Task, seeds: int) -> int:
    """The blocks of the largest grid that computes with the inputs, in so many draws."""
    return max(blocks(lower_device(whole(t.sample(seed)).program).kernels[0]) for seed in range(seeds))


@pytest.mark.corpus
def test_a_narrow_product_occupies_the_device(tmp_path: Path) -> None:
    t = task(tmp_path, "any_product(M=32, N=32, K=65536, T=f32, Acc=f32)", "default")
    whole = t.drawn_from(condition(t.model, {"in_parts": False, "streamed": False}))
    parts = t.drawn_from(condition(t.model, {"in_parts": True, "parts": 128}))
    assert most_blocks(whole, 6) < CORES <= most_blocks(parts, 2)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("any_product(M=32, N=32, K=65536, T=f32, Acc=f32)", True),
        ("any_product(M=32, N=32, K=255, T=f32, Acc=f32)", False),  # too few terms
        ("any_product(M=2048, N=2048, K=1024, T=f32, Acc=f32)", False),  # blocks enough
        ("total(M=1000, N=900)", True),
        ("softmax(M=109, N=4096)", False),  # a block for each row
        ("argmax(M=2, N=10000)", True),
        ("argmax(M=2, N=255)", False),
        ("total(M=7, N=1..100000)", True),
        ("total(M=7, N=1..40)", False),  # a part would be all of it
        ("argmax(M=2, N=1..255)", False),
        ("any_product(M=1..64, N=32, K=65536, T=f32, Acc=f32)", False),  # how many results there are is open
    ],
)
def test_only_what_leaves_the_device_idle_is_split(tmp_path: Path, text: str, splits: bool) -> None:
    t = task(tmp_path, text, "default")
    assert any("in_parts" in t.sample(seed).text for seed in range(6)) == splits


TWO = """
use std.gpu.default
compute product(A: i32[M, K], B: i32[K, N]) -> C: i32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
task three = product(M=97, N=89, K=390)
task eight = product(M=256, N=128, K=390)
"""


@pytest.mark.corpus
def test_parts_fill_the_last_round_of_blocks(tmp_path: Path) -> None:
    """Three tiles are two rounds of two multiprocessors, and six halves of them three. Eight are whole rounds."""
    path = tmp_path / "t.tsched"
    path.write_text(target_of_few("two", 2) + TWO)
    t, whole_rounds = (td.load(path, target="two")[name] for name in ("three", "eight"))
    drawn = t.drawn_from(condition(t.model, {"in_parts": True, "persistent": True}))
    inputs, (a, b) = whole_numbers(t.program)
    persistent = 0
    for seed in range(2):
        trace = whole(drawn.sample(seed))
        assert "let parts ~ sample_categorical([2, 3])" in trace.text
        found = lower_device(trace.program, cores=2)
        if "persist(" in trace.text:
            persistent += 1
            assert blocks(found.kernels[0]) == 2
        assert proof_fault(t.program, trace.program) == ""
        fault, outputs = emulated(found, t.program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["C"], a @ b)
    assert persistent
    assert not any("in_parts ~" in whole_rounds.sample(seed).text for seed in range(3))
