"""Sums over matches on a GPU: each way to share the results is right, at odd sizes, and is what it says."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import atomics_in
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.trace.handlers import condition
from tests.codegen.scatters import Scatter, exact
from tests.examples import FIRST
from tests.gpu.kernels import DRAWS, ptx, whole
from tests.programs import proof_fault
from tests.stdlib.gpu_checks import target_of_few

COUNT = int(os.environ.get("SCATTER_FUZZ", "4"))

TEXT = """
use std.gpu.default
use std.gpu.scatter.{scatter_sums}
use std.gpu.targets.{sm_80}
use std.image.{histogram}

compute rows_of(G: f32[N, D], I: i32[N]; K: int) -> T: f32[K, D] {
    T[k, d] = sum[n] (G[n, d] if I[n] == i32(k) else 0.0)
}

compute counts_of(I: i32[B, N]; K: int) -> T: i64[B, K] {
    T[b, k] = sum[n] (i64(1) if I[b, n] == i32(k) else i64(0))
}

compute most_of(X: i32[N], I: i32[N], J: i32[N]; K: int) -> T: i32[K, K] {
    T[j, k] = max[n] (X[n] if I[n] == i32(j) and J[n] == i32(k) else -2147483648)
}

space loose for cuda {
    scatter_sums(any_order=true)
    default
}
"""


def _counts(i: Array) -> Array:
    return np.stack([np.bincount(row[(row >= 0) & (row < 10)], minlength=10) for row in i])


def _rows(g: Array, i: Array) -> Array:
    out = np.zeros((11, g.shape[1]), np.float32)
    for row, at in zip(g, i, strict=True):
        if 0 <= at < 11:
            out[at] += row
    return out


def _most(x: Array, i: Array, j: Array) -> Array:
    out = np.full((9, 9), -(2**31))
    for v, a, b in zip(x, i, j, strict=True):
        if 0 <= a < 9 and 0 <= b < 9:
            out[a, b] = max(out[a, b], v)
    return out


CASES: dict[str, tuple[str, str, Callable[..., Array]]] = {
    "bytes": ("histogram(H=13, W=37)", "default", lambda x: np.bincount(x.ravel(), minlength=256)),
    "one byte": ("histogram(H=1, W=1)", "default", lambda x: np.bincount(x.ravel(), minlength=256)),
    "several results": ("counts_of(B=3, N=257, K=10)", "default", _counts),
    "pairs": ("most_of(N=499, K=9)", "default", _most),
    "rows": ("rows_of(N=301, D=7, K=11)", "loose", _rows),
    "no rows": ("rows_of(N=0, D=7, K=11)", "loose", _rows),
    "rows, in one order": ("rows_of(N=23, D=37, K=11)", "default", _rows),
}
WAYS = {
    "bytes": ("of_blocks", "of_all"),
    "one byte": ("of_all",),
    "several results": ("of_blocks", "of_all"),
    "pairs": ("of_blocks", "of_all"),
    "rows": ("of_blocks", "of_all"),
    "rows, in one order": ("of_threads",),
}


def task_of(folder: Path, case: str) -> Task:
    path = folder / "t.tsched"
    path.write_text(f"{TEXT}\ntask t = {CASES[case][0]} with {CASES[case][1]}\n")
    return td.load(path)["t"]


def given(t: Task) -> dict[str, Array]:
    """Whole numbers, and places of which some are beyond all."""
    rng, out = np.random.default_rng(0), dict[str, Array]()
    for b in t.program.inputs:
        shape = [int(getattr(e, "value", 0)) for e in b.shape]
        dtype = {"u8": np.uint8, "i32": np.int32, "f32": np.float32}[b.dtype.name]
        out[b.name] = rng.integers(0 if b.dtype.name == "u8" else -2, 13, shape).astype(dtype)
    return out


@pytest.mark.corpus
@pytest.mark.parametrize(("case", "way"), [(case, way) for case, ways in WAYS.items() for way in ways])
def test_each_way_is_exact_in_each_order_of_threads(case: str, way: str, tmp_path: Path) -> None:
    t = task_of(tmp_path, case)
    inputs = given(t)
    drawn = t.drawn_from(condition(t.model, {"scatter": True, "results": way}))
    for seed in range(DRAWS):
        trace = whole(drawn.sample(seed))
        found = lower_device(trace.program)
        shared = {b.name for k in found.kernels for b in k.shared}
        updated = {name for k in found.kernels for name in atomics_in(k.body)}
        assert (len(updated & shared), len(updated - shared)) == {
            "of_threads": (0, 0), "of_blocks": (1, 1), "of_all": (0, 1)
        }[way]  # fmt: skip
        assert ("atom." in ptx(found, "sm_80")) == (way != "of_threads")
        assert proof_fault(t.program, trace.program) == ""
        fault, outputs = emulated(found, t.program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out[t.program.outputs[0].name], CASES[case][2](*inputs.values()))


def test_sums_of_floats_are_atomic_only_by_name(tmp_path: Path) -> None:
    t = task_of(tmp_path, "rows, in one order")
    assert not any("atomic(" in t.sample(seed).text for seed in range(8))


def test_a_sum_of_nothing_is_right(tmp_path: Path) -> None:
    t = task_of(tmp_path, "no rows")
    fault, outputs = emulated(lower_device(whole(t.sample(0)).program), t.program, given(t))
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["T"], np.zeros((11, 7)))


ONE = """
use std.gpu.default
use std.gpu.scatter.{scatter_sums}
space loose for cuda {
    scatter_sums(chance=100, any_order=true, blocks=[1, 3])
    default
}
"""


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_random_sums_over_matches(seed: int, tmp_path: Path) -> None:
    made = Scatter(random.Random(seed))
    compute = made.text().partition("schedule ")[0]
    (tmp_path / "t.tsched").write_text(f"{ONE}{target_of_few('one', 1, 256)}{compute}task t = f() with loose\n")
    t = td.load(tmp_path / "t.tsched", target="one")["t"]
    trace = whole(t.sample(seed))
    assert "let results ~" in trace.text, compute
    inputs = made.inputs(t.program)
    fault, outputs = emulated(lower_device(trace.program, cores=1), t.program, inputs)
    assert fault == "", trace.text
    want = interpret(t.program, inputs)
    assert all(exact(out, want) for out in outputs), trace.text
