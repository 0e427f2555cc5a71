"""Open sizes from 0: kernels of arrays without elements are right, from Python, C and on GPUs, and none is timed at 0."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.api import Task, loads
from tensorc_dsl.backend.llvm.ahead.interface import Status
from tensorc_dsl.backend.llvm.ahead.library import FORMS
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.reference.open_sizes import sizing
from tensorc_dsl.validate.validate import Valid
from tests.ahead.made import needs_compiler, python
from tests.open.random_open import check_everywhere

TASKS = {
    "matmul": ("ops.matmul", "matmul(M=0..40, N=0..40, K=7)"),
    "softmax": ("ops.softmax", "softmax(M=0..40, N=9)"),
    "conv2d": ("ops.conv2d", "conv2d_nhwc(N=0..3, H=0..9, W=5, CI=2, CO=9, KH=3, KW=3, pad=1)"),
    "cumsum": ("ops.cumsum", "cumsum(N=0..70, M=0..9)"),
}
SCALE = """
compute scale(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = X[i, j] * 2.0 }
task t = scale(M=0..40, N=0..9)
"""


def task(name: str) -> Task:
    module, of = TASKS[name]
    return loads(f"use std.{module}\nuse std.cpu.default\ntask t = {of} with default\n", threads=2)["t"]


@pytest.mark.parametrize("name", TASKS)
def test_the_default_space_is_right_and_proved_where_sizes_may_be_0(name: str) -> None:
    t = task(name)
    each = [sorted({0, 1, min(7, d.high or 0), d.high or 0}) for d in t.program.dims]
    sizes = [dict(zip((d.name for d in t.program.dims), some, strict=True)) for some in itertools.product(*each)]
    for seed in range(2):
        trace = t.sample(seed)
        check_everywhere(t.program, trace.program, sizes, seed, orders=seed == 0)
        assert isinstance(t.verify(trace), Valid)


def test_checked_at_0_and_timed_at_larger_sizes() -> None:
    for name in TASKS:
        found = sizing(task(name).program)
        assert any(0 in x.values() for x in found.checked)
        assert all(min(x.values()) > 0 for x in found.timed)
    t = loads(f"use std.cpu\n{SCALE}", threads=1)["t"]
    assert t.measure(t.sample(0)).message == ""


def test_no_size_is_0_after_at_and_no_range_is_empty() -> None:
    for sizes, code, says in (
        ("0..9 at [0, 3]", "E0247", "`0` is no size of `M`, a whole number from 1 to 9"),
        ("9..3", "E0229", "`9..3` is no range of sizes for `M`"),
    ):
        with pytest.raises(TschedError, match=code) as e:
            loads(f"use std.cpu\n{SCALE.replace('0..40', sizes)}")
        assert says in e.value.diagnostics[0].message


def test_arrays_without_elements_in_python() -> None:
    t = loads(f"use std.cpu\n{SCALE}", threads=1)["t"]
    kernel = t.replay(t.sample(0))
    for shape in ((0, 0), (0, 9), (40, 0), (3, 2)):
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(kernel(x), 2 * x)


@needs_compiler
def test_arrays_without_elements_in_c(tmp_path: Path) -> None:
    t = loads(f"use std.cpu\n{SCALE}", threads=1)["t"]
    file = tmp_path / f"t{FORMS['so'].suffix}"
    t.export(t.sample(0), file, "so")
    program = """
def scaled(m, n):
    x, y = array("f", [3.0] * (m * n + 1)), array("f", [-1.0] * (m * n + 1))
    return [*call("t", describe(x, [m, n]), describe(y, [m, n])), list(y) == [6.0] * (m * n) + [-1.0]]
print(json.dumps([scaled(*s) for s in ((0, 0), (0, 9), (40, 0), (5, 3), (41, 0))]))
"""
    *right, many = python(file, program)
    assert right == [[0, 0, True]] * 4
    assert many[0] == Status.SIZE


def test_arrays_without_elements_on_gpus() -> None:
    text = """
target gpu = cuda(cpu="sm_80", cores=4, threads=1024, shared_memory=49152, registers=65536)
schedule bound for scale {
    let [i, j] = Y.loops
    bind(i, "block.x")
    let [j0, j1] = split(j, [_, 4], partial=true)
    bind(j1, "thread.x")
}
"""
    t = loads(f"use std.cpu\n{SCALE.replace('9)', '9) with bound')}{text}", target="gpu")["t"]
    assert t.emulate(t.sample(0)).fault == ""
