"""Inputs and outputs without dimensions: an input may be a number or an array without dimensions; an output is an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorc_dsl.backend.protocol import LoadedKernel, native
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.tuning.machine.host import host_target

TEXT = """
use std.cpu.{default}
compute clip(X: f32[M, N], low: f32, high: f32) -> Y: f32[M, N] { Y[i, j] = min(max(X[i, j], low), high) }
compute pick(X: i32[N], n: i8, on: bool, h: bf16, big: i64) -> s: i32, k: i64 {
    s = i32(n) * (sum[i] X[i]) if on else i32(h)
    k = big
}
compute weighted(X: f32[N], w: const f32) -> s: f64 {
    let v = exp(w)
    s = sum[i] f64(X[i] * v)
}
compute each(a: f16, b: bf16, c: f32, d: f64, e: i8, f: u32) -> Y: f64[6] {
    Y[i] = f64(a) if i == 0 else f64(b) if i == 1 else f64(c) if i == 2 else d if i == 3 else f64(e) if i == 4 else f64(f)
}
task each = each() with default
task clip = clip(M=3, N=5) with default
task clip_any = clip(M=1..9, N=5) with default
task pick = pick(N=7) with default
task weighted = weighted(N=7) with default
"""


def kernel(name: str) -> LoadedKernel:
    task = TaskFile(load_source(Source("single.tsched", TEXT)), host_target(1))[name]
    return native().load(task.compile(task.sample(0)).code, task.sample(0).program, 1)


X = np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5)


@pytest.mark.parametrize("name", ["clip", "clip_any"])
def test_what_is_passed_for_one_value(name: str) -> None:
    k = kernel(name)
    for low, high in [
        (-1, 0.7),
        (np.float32(-1), np.float64(0.7)),
        (np.array(-1, np.float32), np.array(0.7, np.float32)),
        (np.int64(-1), np.array(0.7, np.float32)),
    ]:
        np.testing.assert_array_equal(k(X, low, high), np.clip(X, -1, np.float32(0.7)))


def test_each_type_is_taken_exactly() -> None:
    x = np.arange(7, dtype=np.int32)
    big = 2**63 - 1
    s, k = kernel("pick")(x, -128, True, 2.5, big)
    assert (s.shape, s.dtype, int(s)) == ((), np.int32, -128 * 21)
    assert (k.shape, k.dtype, int(k)) == ((), np.int64, big)
    assert int(kernel("pick")(x, 1, False, 3, 0)[0]) == 3


def test_a_number_is_rounded_to_any_type() -> None:
    k = kernel("each")
    np.testing.assert_array_equal(
        k(1.1, 1.1, 1.1, 1.1, -8, 2**32 - 1), [np.float16(1.1), 1.1015625, np.float32(1.1), 1.1, -8, 2**32 - 1]
    )
    np.testing.assert_array_equal(k(1e9, np.float64(-1e39), 7, np.nan, 0, 0), [np.inf, -np.inf, 7, np.nan, 0, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((128, True, 1.0, 0), "n: expected a value of i8, got 128"),
        ((1.0, True, 1.0, 0), "n: expected a value of i8, got 1.0"),
        ((True, True, 1.0, 0), "n: expected a value of i8, got True"),
        ((1, 1, 1.0, 0), "on: expected a value of bool, got 1"),
        ((1, True, False, 0), "h: expected a value of bf16, got False"),
        ((1, True, 1.0, 2**63), "big: expected a value of i64, got 9223372036854775808"),
        ((1, True, 1.0, 2**70), "big: expected a value of i64, got 1180591620717411303424"),
        ((1, True, 1j, 0), "h: expected an array, got complex"),
        ((np.array([1], np.int8), True, 1.0, 0), r"n: expected shape \(\), got \(1,\)"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel("pick")(np.arange(7, dtype=np.int32), *arguments)


def test_a_number_is_no_array_and_no_output() -> None:
    with pytest.raises(ValueError, match="X: expected an array, got float"):
        kernel("clip")(1.0, -1, 1)
    with pytest.raises(ValueError, match="s: expected an array, got float"):
        kernel("weighted")(np.ones(7, np.float32), 1.0, 0.0)


def test_a_constant_is_bound_as_a_number() -> None:
    x = np.linspace(0, 1, 7, dtype=np.float32)
    found = kernel("weighted").bind(w=0.5)(x)
    np.testing.assert_allclose(found, (x * np.exp(np.float32(0.5))).sum(dtype=np.float64), rtol=1e-6)
