"""The reference against NumPy written out by hand; each case is confirmed by the interpreter too."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import narrow, widen
from tensorc_dsl.ir.dtypes import BF16, F16, F32, F64
from tensorc_dsl.ir.expr import Binary, Var, index
from tensorc_dsl.ir.program import For, LoopKind
from tensorc_dsl.reference import evaluate as evaluate_module
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.values import Box, EvaluateError, linear_parts
from tests.compute.texts import build, made, run, std
from tests.steps import calls


def close(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (1, 1, 1), (1, 13, 11), (4, 4, 0), (0, 3, 2)])
def test_matmul(m: int, n: int, k: int) -> None:
    x, y = run(made(std("matmul"), M=m, N=n, K=k))
    close(y["C"], x["A"].astype(np.float64) @ x["B"].astype(np.float64))


@pytest.mark.parametrize(("m", "n"), [(4, 9), (1, 1), (7, 1), (3, 0)])
def test_softmax(m: int, n: int) -> None:
    x, y = run(made(std("softmax"), M=m, N=n))
    e = np.exp(x["X"].astype(np.float64))
    close(y["Y"], e / e.sum(axis=1, keepdims=True))


def convolution(x: np.ndarray, f: np.ndarray, stride: int, pad: int, dilation: int, groups: int) -> np.ndarray:
    """By the definition, one weight at a time."""
    x = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    f = f.astype(np.float64)
    n, h, w, ci = x.shape
    kh, kw, _, co = f.shape
    oh, ow = (h - dilation * (kh - 1) - 1) // stride + 1, (w - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((n, oh, ow, co))
    for c in range(co):
        g = c // (co // groups)
        part = x[..., g * (ci // groups) : (g + 1) * (ci // groups)]
        for a in range(kh):
            for b in range(kw):
                rows = slice(a * dilation, a * dilation + (oh - 1) * stride + 1, stride)
                columns = slice(b * dilation, b * dilation + (ow - 1) * stride + 1, stride)
                out[..., c] += part[:, rows, columns] @ f[a, b, :, c]
    return out


@pytest.mark.parametrize(
    ("h", "w", "ci", "co", "kh", "kw", "stride", "pad", "dilation", "groups"),
    [
        (5, 6, 2, 3, 3, 3, 1, 0, 1, 1),
        (5, 6, 2, 3, 3, 2, 1, 1, 1, 1),
        (7, 8, 3, 2, 3, 3, 2, 1, 1, 1),
        (9, 7, 1, 2, 3, 2, 2, 2, 2, 1),
        (5, 5, 4, 6, 3, 3, 1, 1, 1, 2),
        (5, 4, 6, 6, 2, 2, 2, 1, 2, 6),
        (1, 1, 1, 1, 1, 1, 1, 0, 1, 1),
        (3, 3, 5, 7, 3, 3, 3, 0, 1, 1),
    ],
)
def test_convolutions(
    h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int, pad: int, dilation: int, groups: int
) -> None:
    attributes = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    x, y = run(made(std("conv2d"), N=2, H=h, W=w, CI=ci, CO=co, KH=kh, KW=kw, **attributes))
    close(y["Y"], convolution(x["X"], x["F"], **attributes))


def test_integers_wrap_as_their_type_does() -> None:
    p = build("compute f(A: i8[M, K], B: i8[K]) -> C: i8[M] { C[i] = sum[k] A[i, k] * B[k] }", M=3, K=9)
    x = {"A": np.full((3, 9), 100, np.int8), "B": np.full(9, 3, np.int8)}
    np.testing.assert_array_equal(evaluate(p, x)["C"], np.full(3, 9 * 300).astype(np.int8))
    x, y = run(build("compute f(A: i32[M]) -> C: i32[M] { C[i] = -A[i] / 3 * 2147483647 + A[i] % -4 }", M=9))
    a = x["A"].astype(np.int64)
    np.testing.assert_array_equal(y["C"], (-a // 3 * 2147483647 + a % -4).astype(np.int32))
    x, y = run(build("compute f(A: u8[M]) -> C: u8[M] { C[i] = 1 - A[i] }", M=9))
    np.testing.assert_array_equal(y["C"], np.uint8(1) - x["A"])


def test_large_integer_products_are_exact() -> None:
    p = build(
        "compute f(A: i64[M, K], B: i64[K, N]) -> C: i64[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }", M=2, N=2, K=2
    )
    a = np.array([[2**40 + 1, 3], [5, 2**33]])
    np.testing.assert_array_equal(evaluate(p, {"A": a, "B": a})["C"], a @ a)


def test_other_reductions_and_layouts() -> None:
    text = """compute f(X: f32[N, H, C]) -> Y: f32[C, N, O], M: f32[N], Q: bool[H], L: bool where O = (H - 3) / 2 + 1 {
        Y[c, n, o] = max[k in 3] X[n, o*2 + k, c]
        M[n] = prod[h, c] X[n, h, c] * 4
        Q[h] = any[n, c] X[n, h, c] > 0.9
        L = all[n, h, c] X[n, h, c] < 2
    }"""
    x, y = run(build(text, N=2, H=7, C=3))
    a = x["X"].astype(np.float64)
    windows = np.stack([a[:, k : k + 5 : 2] for k in range(3)]).max(axis=0)
    close(y["Y"], windows.transpose(2, 0, 1))
    close(y["M"], (a * 4).prod(axis=(1, 2)))
    np.testing.assert_array_equal(y["Q"], (a > np.float64(0.9)).any(axis=(0, 2)))
    assert y["L"] == np.True_


def test_sums_that_are_no_plain_products() -> None:
    text = """compute f(A: f32[M, K], B: f32[K, N], s: f32) -> C: f32[M, N], D: f32[M], E: f32, T: f32[M, M] {
        C[i, j] = sum[k] abs(A[i, k] - B[k, j])
        D[i] = sum[k, j] A[i, k] * B[k, j] * 2 * s * exp(A[i, k])
        E = sum[i in 5] s
        T[i, j] = sum[k] A[i, k] * A[j, k] * (B[k, 0] + 1)
    }"""
    x, y = run(build(text, M=4, N=3, K=5))
    a, b, s = (x[n].astype(np.float64) for n in "ABs")
    close(y["C"], np.abs(a[:, :, None] - b[None]).sum(axis=1))
    close(y["D"], (a * np.exp(a) * 2 * s) @ b.sum(axis=1))
    close(y["E"], 5 * s)
    close(y["T"], (a * (b[:, 0] + 1)) @ a.T)


def test_diagonals_reversals_and_guards() -> None:
    text = """compute f(A: f32[M, M], B: f32[N]) -> C: f32[M], D: f32[O] where O = M + N {
        C[i] = sum[k in 3] A[i, i] * A[M - 1 - i, k]
        D[i] = A[i, 0] if i < M else B[i - M]
    }"""
    x, y = run(build(text, M=4, N=3))
    a, b = x["A"].astype(np.float64), x["B"].astype(np.float64)
    close(y["C"], np.diag(a) * a[::-1, :3].sum(axis=1))
    close(y["D"], np.concatenate([a[:, 0], b]))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_other_floats(dtype: str) -> None:
    p = build(f"compute f(A: {dtype}[M]) -> C: f32[M] {{ C[i] = f32(A[i]) * 2 }}", M=9)
    x, y = run(p)
    close(y["C"], narrow(widen(x["A"], {"f16": F16, "bf16": BF16}.get(dtype, F64)), F32).astype(np.float64) * 2)


def test_bf16_bits_round_to_nearest_even() -> None:
    values = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, -2.5, np.inf])
    assert widen(narrow(values, BF16), BF16).tolist() == [1.0, 1.0, 1.0 + 2**-6, -2.5, np.inf]
    assert np.isnan(widen(narrow(np.array([np.nan]), BF16), BF16)).all()


def test_the_result_does_not_depend_on_how_boxes_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [
        made(std("conv2d"), N=2, H=6, W=5, CI=4, CO=6, KH=3, KW=2, pad=1, groups=2),
        made(std("softmax"), M=5, N=7),
    ]
    before = [evaluate(p, make_inputs(p, 3)) for p in programs]
    monkeypatch.setattr(evaluate_module, "FACTOR_LIMIT", 13)
    monkeypatch.setattr(evaluate_module, "CHUNK_LIMIT", 7)
    for p, expected in zip(programs, before, strict=True):
        for name, got in evaluate(p, make_inputs(p, 3)).items():
            close(got, expected[name])


def test_quotients_become_linear_on_parts_of_their_axis() -> None:
    box = Box(("c", "k"), (0, 0), (10, 3))
    group = index(4)
    parts = linear_parts([Binary("/", Var("c"), group)], box)
    assert [(p.start[0], p.size[0]) for p in parts] == [(0, 4), (4, 4), (8, 2)]
    assert linear_parts([Binary("/", Var("c"), group)], box, limit=2) == [box]


def test_wrong_inputs_and_scheduled_programs_are_refused() -> None:
    p = made(std("matmul"), M=2, N=3, K=4)
    x = make_inputs(p, 0)
    with pytest.raises(EvaluateError, match="'B' of program matmul is missing"):
        evaluate(p, {"A": x["A"]})
    with pytest.raises(EvaluateError, match="no parameter 'Z'"):
        evaluate(p, {**x, "Z": x["A"]})
    with pytest.raises(EvaluateError, match=r"shape \(4, 3\), the program wants \(2, 4\)"):
        evaluate(p, {"A": x["B"], "B": x["B"]})
    (loop,) = p.body
    assert isinstance(loop, For)
    scheduled = replace(p, body=(replace(loop, extent=index(1)),))
    with pytest.raises(EvaluateError, match="block C is scheduled"):
        evaluate(scheduled, x)
    parallel = replace(p, body=(replace(loop, kind=LoopKind.PARALLEL),))
    close(evaluate(parallel, x)["C"], evaluate(p, x)["C"])


def test_inputs_are_reproducible_and_never_zero() -> None:
    p = build("compute f(A: f32[M], B: i8[M], C: u8[M], D: f64[M]) -> Y: f32[M] { Y[i] = sqrt(A[i]) }", M=1000)
    a, b = make_inputs(p, 5), make_inputs(p, 5)
    assert all((a[n] == b[n]).all() and (a[n] != 0).all() for n in "ABCD")
    assert [a[n].dtype for n in "ABCD"] == [np.float32, np.int8, np.uint8, np.float64]
    assert (a["A"] > 0).all()
    assert (a["D"] < 0).any() and (a["B"] < 0).any()
    assert (make_inputs(p, 6)["D"] != a["D"]).mean() > 0.99


def test_real_sizes_are_a_few_operations_on_arrays() -> None:
    for p in (
        made(std("matmul"), M=1024, N=1024, K=1024),
        made(std("conv2d"), N=1, H=56, W=56, CI=64, CO=64, KH=3, KW=3, pad=1),
        made(std("softmax"), M=1024, N=1024),
    ):
        x = make_inputs(p, 0)
        assert calls(partial(evaluate, p, x)) < 5_000  # and not one for each of millions of elements
