"""`std.cpu.move`: its rules apply to blocks that only move memory, leave others alone, and change no result."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import Task, TaskFile
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.expansion import stream

TASKS = """
use std.cpu.{default}
use std.ops.{gather_rows, matmul, pad_nhwc, softmax, transpose}

compute channels_last(X: f32[N, C, H, W]) -> Y: f32[N, H, W, C] { Y[n, h, w, c] = X[n, c, h, w] }
compute channels_first(X: f32[N, H, W, C]) -> Y: f32[N, C, H, W] { Y[n, c, h, w] = X[n, h, w, c] }
compute back_to_front(X: T[A, B, C, D]; T: dtype) -> Y: T[D, C, B, A] { Y[d, c, b, a] = X[a, b, c, d] }
compute added(A: f32[M, N], B: f32[N, M]) -> Y: f32[M, N] { Y[i, j] = A[i, j] + B[j, i] }
compute copied(A: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = A[i, j] }
compute spread(v: f32[M]) -> Y: f32[M, N] { Y[i, j in N] = v[i] }
compute pairs(X: f32[V, 3], I: i32[N]) -> Y: f32[N, 2, 3] { Y[n, i, c] = X[clamp(clamp(I[n], 0, V) + i, 0, V - 1), c] }
compute gathered(W: f32[V, D], I: i32[N]) -> Y: f32[D, N] { Y[d, n] = W[clamp(I[n], 0, V - 1), d] }

task turned = transpose(M=37, N=53) with default
task doubles = transpose(M=37, N=53, T=f64) with default
task column = transpose(M=1, N=53) with default
task last = channels_last(N=2, C=19, H=5, W=21) with default
task last_rgb = channels_last(N=2, C=3, H=5, W=21) with default
task first = channels_first(N=2, C=19, H=5, W=21) with default
task first_rgb = channels_first(N=2, C=3, H=5, W=21) with default
task reversed = back_to_front(A=19, B=7, C=3, D=23, T=f32) with default
task reversed_bytes = back_to_front(A=67, B=5, C=2, D=19, T=u8) with default
task both = added(M=37, N=53) with default
task copy = copied(M=37, N=64) with default
task rows = spread(M=20, N=33) with default
task table = gather_rows(V=9, D=20, N=33) with default
task columns = gathered(V=9, D=20, N=33) with default
task open_pairs = pairs(V=1..64, N=9) with default
task open = transpose(M=1..64, N=53) with default
task padded_rgb = pad_nhwc(N=2, H=5, W=21, C=3) with default
task padded = pad_nhwc(N=2, H=5, W=21, C=32) with default
task product = matmul(M=33, N=37, K=19) with default
task soft = softmax(M=13, N=7) with default
"""


def task(name: str, target: Target | None = None) -> Task:
    return TaskFile(load_source(Source("move.tsched", TASKS)), target or host_target(2))[name]


def taken(t: Task, module: str) -> bool:
    """Whether some block met all conditions of a module."""
    attempts = t.space.explain(t.space.sample(stream(0, t.name, "test")))
    found = [not a.reasons for a in attempts if a.module.endswith(module)]
    return any(found)


TURNED = {"turned", "doubles", "last", "last_rgb", "first", "first_rgb", "reversed", "reversed_bytes", "both"}
SHORT = {"padded_rgb"}


@pytest.mark.corpus
@pytest.mark.parametrize("name", [line.split()[1] for line in TASKS.splitlines() if line.startswith("task")])
def test_each_rule_takes_its_own_blocks(name: str) -> None:
    t = task(name, Target(vector_bits=512, cores=2))
    assert t.sample(0).refused == ()
    assert taken(t, "turn_read") == (name in TURNED)
    assert taken(t, "fuse_short_rows") == (name in SHORT)
    assert not taken(t, "stream_results")


def padded(x: Array) -> Array:
    return np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted(TURNED | SHORT | {"open", "columns", "column"}))
def test_results(name: str) -> None:
    rng = np.random.default_rng(0)
    t = task(name)
    for number in range(6):
        kernel = t.replay(t.sample(seed=0, number=number))
        match name:
            case "turned" | "doubles" | "open" | "column":
                shape = (1 if name == "column" else 37, 53)
                x = rng.standard_normal(shape).astype(np.float64 if name == "doubles" else np.float32)
                got, want = kernel(x), x.T
            case "last" | "last_rgb":
                x = rng.standard_normal((2, 3 if name == "last_rgb" else 19, 5, 21)).astype(np.float32)
                got, want = kernel(x), x.transpose(0, 2, 3, 1)
            case "first" | "first_rgb":
                x = rng.standard_normal((2, 5, 21, 3 if name == "first_rgb" else 19)).astype(np.float32)
                got, want = kernel(x), x.transpose(0, 3, 1, 2)
            case "reversed" | "reversed_bytes":
                shape = (19, 7, 3, 23) if name == "reversed" else (67, 5, 2, 19)
                x = rng.integers(0, 200, shape).astype(np.float32 if name == "reversed" else np.uint8)
                got, want = kernel(x), x.T
            case "both":
                a = rng.standard_normal((37, 53)).astype(np.float32)
                b = rng.standard_normal((53, 37)).astype(np.float32)
                got, want = kernel(a, b), a + b.T
            case "columns":
                w, i = rng.standard_normal((9, 20)).astype(np.float32), rng.integers(0, 9, 33).astype(np.int32)
                got, want = kernel(w, i), w[i].T
            case _:
                x = rng.standard_normal((2, 5, 21, 3)).astype(np.float32)
                got, want = kernel(x), padded(x)
        np.testing.assert_array_equal(got, want)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "applies"), [("copy", True), ("padded", True), ("turned", False), ("soft", False), ("product", False)]
)
def test_results_of_more_than_a_quarter_of_the_last_cache_may_pass_it_by(name: str, applies: bool) -> None:
    """Where their rows are whole vectors."""
    target = Target(cpu="x86-64-v4", vector_bits=512, cores=2, l3=256, triple="x86_64-unknown-linux-gnu")
    t = task(name, target)
    (result,) = t.program.outputs
    size = prod(constant(n) or 0 for n in result.shape) * result.dtype.bytes
    assert taken(task(name, replace(target, l3=4 * size - 1)), "stream_results") == applies
    assert not taken(task(name, replace(target, l3=4 * size)), "stream_results")
    assert taken(t, "stream_results") == applies
    traces = [t.sample(seed=0, number=n) for n in range(16)]
    asked = [x for x in traces if "annotate(" in x.text and '"store.nontemporal", true' in x.text]
    assert bool(asked) == applies and len(asked) < len(traces)
    assert all("!nontemporal" in t.compile(x).view("llvm") for x in asked[:1])
