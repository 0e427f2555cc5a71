"""Open sizes from 0: kernels of arrays without elements are right, from Python, C and on GPUs, and none is timed at 0."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.ahead.interface import Status
from tensorc_dsl.backend.llvm.ahead.library import FORMS
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.reference.work import sizing
from tests.ahead.made import needs_compiler, python
from tests.open.random_open import check_everywhere

TASKS = {
    "matmul": ("ops.matmul", "matmul(M=0..40, N=0..40, K=7)"),
    "softmax": ("ops.softmax", "softmax(M=0..40, N=9)"),
    "conv2d": ("ops.conv2d", "conv2d_nhwc(N=0..3, H=0..9, W=5, CI=2, CO=9, KH=3, KW=3, pad=1)"),
    "cumsum": ("ops.cumsum", "cumsum(N=0..70, M=0..9)"),
    "products of nothing": ("ops.matmul", "matmul(M=9, N=0..20, K=0..40)"),
    "rows of nothing": ("ops.softmax", "softmax(M=7, N=0..40)"),
    "histogram": ("image.histogram", "histogram(H=0..20, W=0..20)"),
}
GPU = """
target gpu = cuda(cpu="sm_80", cores=4, threads=1024, shared_memory=49152, registers=65536)
"""
SCALE = """
compute scale(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = X[i, j] * 2.0 }
task t = scale(M=0..40, N=0..9)
"""


def task(name: str) -> Task:
    module, of = TASKS[name]
    return loads(f"use std.{module}\nuse std.cpu.default\ntask t = {of} with default\n", threads=2)["t"]


@pytest.mark.corpus
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


@needs_compiler
def test_memory_without_elements_may_be_anywhere_in_c(tmp_path: Path) -> None:
    """Libraries have such arrays at null, with strides of their own."""
    strided = f"{SCALE.replace('Y: f32[M, N]', 'Y: f32[M, N] strides [S, 1]').replace('N=0..9', 'N=0..9, S=9..20')}"
    for text in (SCALE, strided):
        t = loads(f"use std.cpu\n{text}", threads=1)["t"]
        file = tmp_path / f"t{FORMS['so'].suffix}"
        t.export(t.sample(0), file, "so")
        program = """
one, many = array("f", [1.0]), array("f", [1.0] * 40)
def scaled(shape, of=one, **changes):
    return call("t", describe(of, shape, **changes), describe(of, shape, **changes))
print(json.dumps([
    scaled([5, 0], data=None), scaled([0, 0], data=None), scaled([5, 0], strides=ints([1, 1])),
    scaled([0, 9], strides=ints([0, 0])), scaled([5, 0], byte_offset=1), scaled([5, 0]),
    call("t", describe(many, [0, 9]), describe(many, [0, 9], byte_offset=12)),
    scaled([1, 1], data=None), scaled([1, 9], many),
]))
"""
        *right, null, overlap = python(file, program)
        assert right == [[0, 0]] * 7
        assert (null[0], overlap[0]) == (Status.NULL, Status.OVERLAP)


def test_arrays_without_elements_on_gpus() -> None:
    text = """
schedule bound for scale {
    let [i, j] = Y.loops
    bind(i, "block.x")
    let [j0, j1] = split(j, [_, 4], partial=true)
    bind(j1, "thread.x")
}
"""
    t = loads(f"use std.cpu\n{SCALE.replace('9)', '9) with bound')}{text}{GPU}", target="gpu")["t"]
    assert t.emulate(t.sample(0)).fault == ""


DTYPES = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}
REDUCED = """
compute f(A: {t}[M, K]) -> B: {t}[M] {{ B[i] = {reducer}[k in K - {less}] A[i, k] }}
task t = f(M=0..5, K={less}..9)
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("reducer", "t"), [("sum", "f32"), ("prod", "i32"), ("max", "f32"), ("min", "i32"), ("all", "bool")]
)
@pytest.mark.parametrize("less", [0, 3])
def test_a_reduction_of_nothing_is_what_it_is_at_fixed_sizes(reducer: str, t: str, less: int) -> None:
    text = REDUCED.format(reducer=reducer, t=t, less=less)
    found = loads(f"use std.cpu\n{text}", threads=1)["t"]
    kernel = found.replay(found.sample(0))
    fixed = loads(f"use std.cpu\n{text.replace(f'M=0..5, K={less}..9', f'M=5, K={less}')}", threads=1)["t"]
    a = np.ones((5, less), kernel(np.ones((1, 9), DTYPES[t])).dtype)
    np.testing.assert_array_equal(kernel(a), fixed.replay(fixed.sample(0))(a))
    check_everywhere(
        found.program, found.program, [{"M": m, "K": k} for m in (0, 1, 5) for k in (less, less + 1, 9)], 0, True
    )


BY_HAND = """
compute f(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
task t = f(M=8, N=0..9, K=0..9) with s
schedule s for f {
    let [i, j, k] = C.loops
"""
TAKEN = (
    "reorder(k, j)",
    "let [k0, k1] = split(k, [_, 4], partial=true)\nrfactor(C, k0)",
    "let [k0, k1] = split(k, [_, 16], partial=true)\nrfactor(C, k1)",
    "rfactor(C, k)",
    "decompose_reduction(C, i)",
    'decompose_reduction(C, j)\nsplit(k, [_, 4], partial="cut")',
    'let o = cache_write(C, "local")\nreverse_compute_at(o, i)',
    "write_at(j, C)",
)
REFUSED = {
    'write_at(k, C, "global")': "`K` limits its instances",
    "reorder(k, j)\nskew(k, j)": "counts its elements too",
    'split(k, [_, 4], partial="cut")': "`k_0` may have no iteration where there is a step",
}


@pytest.mark.corpus
@pytest.mark.parametrize("steps", TAKEN)
def test_steps_keep_what_a_reduction_of_nothing_is(steps: str) -> None:
    t = loads(f"use std.cpu\n{BY_HAND}{steps}\n}}\n", threads=1)["t"]
    trace = t.sample(0)
    check_everywhere(t.program, trace.program, [{"N": n, "K": k} for n in (0, 1, 7) for k in (0, 1, 5, 9)], 0, True)
    assert isinstance(t.verify(trace), Valid)


def test_a_fused_loop_beside_a_sum_of_at_most_one_term() -> None:
    """Fused loops are taken apart in lowering, which simplified the sum's loop of at most one iteration to 0: no init ran."""
    text = BY_HAND.replace("K=0..9", "K=0..1").replace("M=8, N=0..9", "M=0..8, N=1")
    t = loads(f"use std.cpu\n{text}let [j0, j1] = split(j, [3, _], partial=true)\nfuse(i, j0)\n}}\n", threads=1)["t"]
    trace = t.sample(0)
    check_everywhere(t.program, trace.program, [{"M": m, "K": k} for m in (0, 1, 8) for k in (0, 1)], 0, True)


@pytest.mark.parametrize("steps", REFUSED)
def test_steps_that_would_lose_it_are_refused(steps: str) -> None:
    t = loads(f"use std.cpu\n{BY_HAND}{steps}\n}}\n", threads=1)["t"]
    with pytest.raises(TschedError, match="E0694") as e:
        t.sample(0)
    assert REFUSED[steps] in e.value.diagnostics[0].message


def test_a_spatial_loop_that_a_reduction_makes_shorter_is_refused() -> None:
    text = BY_HAND.replace("K=0..9", "K=0..1").replace("N=0..9", "N=8")
    t = loads(f"use std.cpu\n{text}reorder(k, j)\nskew(k, j)\n}}\n", threads=1)["t"]
    with pytest.raises(TschedError, match="E0694"):
        t.sample(0)


def test_a_sum_in_the_step_of_a_scan_may_be_empty() -> None:
    step = "scan[t] init 1 step 1 + sum[k] A[t, k] * B[t - 1]"
    t = loads(f"use std.cpu\ncompute f(A: f32[M, K]) -> B: f32[M] {{ B[t] = {step} }}\ntask t = f(M=0..9, K=0..9)")["t"]
    trace = t.sample(0)
    check_everywhere(t.program, trace.program, [{"M": m, "K": k} for m in (0, 1, 9) for k in (0, 1, 9)], 0, True)
    assert isinstance(t.verify(trace), Valid)


def test_a_mean_of_nothing_is_nan_as_in_numpy() -> None:
    text = "compute f(A: f32[K]) -> B: f32 { let S = sum[k] A[k]\n B = S / f32(K) }\ntask t = f(K=0..9)"
    t = loads(f"use std.cpu\n{text}", threads=1)["t"]
    kernel = t.replay(t.sample(0))
    assert np.isnan(kernel(np.zeros(0, np.float32)))
    assert kernel(np.full(4, 3, np.float32)) == 3


def test_positions_of_nothing_are_refused() -> None:
    text = "compute f(A: f32[M, K]) -> B: i64[M] { B[i] = argmax[k] A[i, k] }\ntask t = f(M=3, K=0..9)"
    with pytest.raises(TschedError, match="the reduction over `k` may have no steps"):
        loads(f"use std.cpu\n{text}")


def test_reductions_of_nothing_on_gpus() -> None:
    t = loads(
        f"use std.ops.matmul\nuse std.gpu.default\n{GPU}task t = matmul(M=5, N=0..9, K=0..20) with default\n",
        target="gpu",
    )["t"]
    for seed in range(2):
        assert t.emulate(t.sample(seed)).fault == ""
